"""The suite with a queue that has a database of its own: PGJOBS_TEST_OWN_DATABASE=1 turns it on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from django.db import connections
from django.utils.connection import ConnectionProxy

if TYPE_CHECKING:
    import pytest

ALIAS = "queue"
ON = os.environ.get("PGJOBS_TEST_OWN_DATABASE", "") not in ("", "0")
QUEUE = ALIAS if ON else "default"
"""Where the tables of pgjobs and of `jobsapp` are."""
connection: Any = ConnectionProxy(connections, QUEUE)


class BesideTheQueue:
    """Sends the tables of the tests' handlers to the queue's database, so that `ctx.finish` covers them."""

    def db_for_read(self, model: type[Any], **hints: Any) -> str | None:
        return ALIAS if model._meta.app_label == "jobsapp" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == ALIAS if app_label == "jobsapp" else None


def beside(url: str) -> str:
    """The URL of the queue's database on the same server."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path}_queue"))


def allow_every_database(items: list[pytest.Item]) -> None:
    """Tests of pytest-django see `default` alone unless they are told otherwise."""
    import pytest  # here, since worker processes read this module for their settings

    for item in items:
        fixtures: Any = getattr(item, "fixturenames", ())
        mark = item.get_closest_marker("django_db")
        if mark is not None:
            kwargs: Any = mark.kwargs
            kwargs["databases"] = "__all__"
        elif {"db", "transactional_db"} & set(fixtures):
            item.add_marker(
                pytest.mark.django_db(databases="__all__", transaction="transactional_db" in fixtures)
            )
