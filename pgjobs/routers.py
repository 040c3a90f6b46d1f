"""The router of a project whose queue has a database of its own."""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS

from pgjobs.conf import get_settings

APP_LABEL = "pgjobs"


class PgJobsRouter:
    """Keeps the tables of pgjobs in ``PGJOBS["DATABASE"]``, and everything else out of there.

    List it last in ``DATABASE_ROUTERS``: an app whose own tables belong beside the queue, so that ``ctx.finish``
    covers them, is then sent there by a router before it.
    """

    def db_for_read(self, model: type[Any], **hints: Any) -> str | None:
        """The queue's alias, for its own models."""
        return get_settings().database if model._meta.app_label == APP_LABEL else None

    db_for_write = db_for_read

    def allow_relation(self, obj1: Any, obj2: Any, **hints: Any) -> bool | None:
        """An execution may have its subject's content type in another database: no constraint stands between."""
        labels = {obj1._meta.app_label, obj2._meta.app_label}
        return True if labels == {APP_LABEL, "contenttypes"} else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """The queue's tables there and nowhere else; nothing else there."""
        own = get_settings().database
        if app_label == APP_LABEL:
            return db == own
        return False if db == own != DEFAULT_DB_ALIAS else None
