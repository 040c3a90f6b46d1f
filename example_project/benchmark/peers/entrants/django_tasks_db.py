from example_project.benchmark.peers.entrant import Entrant

DJANGO_TASKS_DB = Entrant(
    name="django-tasks-db",
    packages=("django-tasks-db", "psycopg[binary]", "django-tasks; python_version < '3.12'"),
    settings=(
        "db_worker, which runs one task at a time; polled every second (its default)",
        "CONN_MAX_AGE=None (Django's guide on persistent connections)",
        "bulk: one call a task, there is none for many",
    ),
    unfinished="SELECT EXISTS (SELECT FROM django_tasks_database_dbtaskresult WHERE status IN ('READY', 'RUNNING'))",
    succeeded="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status = 'SUCCESSFUL'",
    span="""
        SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8
        FROM django_tasks_database_dbtaskresult""",
    clock="worker",
)
