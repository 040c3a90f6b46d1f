"""Jobs by id, wherever they are: in the live table or in the archive."""

from __future__ import annotations

from collections.abc import Iterable

from pgjobs.conf import get_settings
from pgjobs.queue.models import ArchivedJob, Job


def find_job(pk: int) -> Job | ArchivedJob | None:
    """The job of that id; an :class:`ArchivedJob` once retention has moved it; None when there is none (any more).

    A job that moves at this moment is found: it appears in the archive in the commit that takes it away.
    """
    live = Job._base_manager.using(get_settings().database).filter(pk=pk).first()
    return live or find_archived(pk)


def find_archived(pk: int) -> ArchivedJob | None:
    """The archived job of that id."""
    return ArchivedJob._base_manager.using(get_settings().database).filter(pk=pk).first()


def archived_among(ids: Iterable[int], *, using: str) -> dict[int, tuple[str, str]]:
    """Status and day of archiving ("2026-11-30") of those ids that are in the archive."""
    found = ArchivedJob._base_manager.using(using).filter(pk__in=list(ids))
    return {
        pk: (status, f"{at:%Y-%m-%d}") for pk, status, at in found.values_list("pk", "status", "archived_at")
    }
