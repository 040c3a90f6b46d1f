"""A Django project of nothing but a task backend, for the entrants that are one."""

from typing import Any

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from example_project.benchmark.peers import program


def configure(app: str, backend: str) -> None:
    given = conninfo_to_dict(program.database())
    database: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": given.get("dbname", ""),
        "USER": given.get("user", ""),
        "PASSWORD": given.get("password", ""),
        "HOST": given.get("host", ""),
        "PORT": str(given.get("port", "")),
        # Django's own advice for processes that live long; without it each task opens a connection.
        "CONN_MAX_AGE": None,
    }
    settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=["django.contrib.contenttypes", app],
        TASKS={"default": {"BACKEND": backend, "QUEUES": []}},
        USE_TZ=True,
        SECRET_KEY="benchmark",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()
