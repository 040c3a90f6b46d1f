from example_project.benchmark.peers.entrant import Entrant

CHANCY = Entrant(
    name="chancy",
    packages=("chancy", "psycopg[binary]"),
    settings=(
        "asynchronous executor (its guide on executors), eager_polling on (its queue reference, for queues that "
        "always hold jobs)",
        "LISTEN/NOTIFY on, results written once a second (its defaults): its times are of the run, not of the write",
        "bulk: sync_push_many, batches of 1,000 (its default)",
    ),
    unfinished="SELECT EXISTS (SELECT FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed', 'cancelled'))",
    succeeded="SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'",
    span="SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM chancy_jobs",
    clock="worker",
)
