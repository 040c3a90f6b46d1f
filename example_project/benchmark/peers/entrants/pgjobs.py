from example_project.benchmark.peers.entrant import Entrant

PGJOBS = Entrant(
    name="pgjobs",
    settings=(
        "runworkers with its defaults, 1 process",
        "sync handlers",
        "bulk: enqueue_many; single: with Django's prepare_threshold (its page on performance)",
    ),
    unfinished="SELECT EXISTS (SELECT FROM pgjobs_job WHERE status IN ('pending', 'running'))",
    succeeded="SELECT count(*) FROM pgjobs_job WHERE status = 'succeeded' AND attempt_count = 1",
    span="SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM pgjobs_job",
    steps_unfinished="SELECT EXISTS (SELECT FROM pgjobs_execution WHERE status IN ('enqueued', 'running'))",
    steps_recorded="SELECT count(*) FROM pgjobs_stepoutput",
    steps_span="""
        SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM pgjobs_execution
        WHERE status = 'succeeded'""",
)
