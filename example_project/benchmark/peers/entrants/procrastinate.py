from example_project.benchmark.peers.entrant import Entrant

PROCRASTINATE = Entrant(
    name="procrastinate",
    packages=("procrastinate", "psycopg[binary]"),
    settings=(
        "async tasks and `worker --concurrency` (its guide on concurrency)",
        "LISTEN/NOTIFY on, finished jobs kept (its defaults)",
        "bulk: batch_defer_async (its guide on deferring)",
    ),
    unfinished="SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
    succeeded="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded' AND attempts = 1",
    span="""
        SELECT extract(epoch FROM max(at) FILTER (WHERE type = 'succeeded')
                              - min(at) FILTER (WHERE type = 'started'))::float8
        FROM procrastinate_events""",
)
