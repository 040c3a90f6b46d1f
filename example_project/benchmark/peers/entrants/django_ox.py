from example_project.benchmark.peers.entrant import Entrant

DJANGO_OX = Entrant(
    name="django-ox",
    packages=("django-ox", "psycopg[binary]"),
    settings=(
        "ox_worker --concurrency; polled every second (its default)",
        "CONN_MAX_AGE=None (its own benchmark uses persistent connections)",
        "bulk: enqueue_many",
    ),
    python=(3, 12),
    unfinished="SELECT EXISTS (SELECT FROM django_ox_oxtask WHERE status IN ('READY', 'RUNNING', 'WAITING'))",
    succeeded="SELECT count(*) FROM django_ox_oxtask WHERE status = 'SUCCESSFUL' AND attempts = 1",
    span="SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM django_ox_oxtask",
    clock="worker",
)
