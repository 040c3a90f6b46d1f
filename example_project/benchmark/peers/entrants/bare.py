from example_project.benchmark.peers.entrant import Entrant

BARE = Entrant(
    name="bare",
    settings=(
        "a loop of psycopg, one connection, one thread: a claim of 100 with SKIP LOCKED, one settlement of 100 with "
        "results by primary key and token; no retries, no heartbeat, no history of attempts",
        "bulk: COPY; single: INSERT and commit",
    ),
    unfinished="SELECT EXISTS (SELECT FROM job WHERE status <> 'succeeded')",
    succeeded="SELECT count(*) FROM job WHERE status = 'succeeded'",
    span="SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM job",
    picks_up=False,
)
