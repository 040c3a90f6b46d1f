from dataclasses import replace

from example_project.benchmark.peers.entrant import Entrant

PGQUEUER = Entrant(
    name="pgqueuer",
    packages=("pgqueuer[asyncpg]",),
    settings=(
        "asyncpg driver (its quick start) on uvloop (its command), async entry points, durable tables (its default)",
        "batch_size as the concurrency, 10 by its default; no cap on tasks at a time, which it allows only from "
        "twice the batch up and which makes its claim dearer",
        "bulk: one enqueue call with lists",
    ),
    # A job leaves the queue in the statement that logs its end.
    unfinished="SELECT EXISTS (SELECT FROM pgqueuer)",
    succeeded="SELECT count(DISTINCT job_id) FROM pgqueuer_log WHERE status = 'successful'",
    span="""
        SELECT extract(epoch FROM max(created) FILTER (WHERE status = 'successful')
                              - min(created) FILTER (WHERE status = 'picked'))::float8
        FROM pgqueuer_log""",
)
PGQUEUER_BATCH_100 = replace(
    PGQUEUER,
    name="pgqueuer-100",
    program="pgqueuer",
    variant="100",
    settings=("as pgqueuer, with batch_size=100, beyond the concurrency of the others",),
)
