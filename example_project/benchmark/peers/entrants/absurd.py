from example_project.benchmark.peers.entrant import Entrant

ABSURD = Entrant(
    name="absurd",
    packages=("absurd-sdk", "absurdctl", "psycopg[binary]"),
    settings=(
        "start_worker(concurrency=...) of the synchronous client, polled every 0.25 s (its default)",
        "queue not partitioned (its default); bulk: one call a task, there is none for many",
    ),
    unfinished="SELECT EXISTS (SELECT FROM absurd.t_benchmark WHERE state NOT IN ('completed', 'failed', 'cancelled'))",
    succeeded="SELECT count(*) FROM absurd.t_benchmark WHERE state = 'completed' AND attempts = 1",
    span="SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM absurd.r_benchmark",
    steps_unfinished="""
        SELECT EXISTS (SELECT FROM absurd.t_benchmark WHERE state NOT IN ('completed', 'failed', 'cancelled'))""",
    steps_recorded="SELECT count(*) FROM absurd.c_benchmark WHERE status = 'committed'",
    steps_span="SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM absurd.r_benchmark",
)
