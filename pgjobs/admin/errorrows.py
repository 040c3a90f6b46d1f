"""Causes of failures as rows, for the page of errors and for the overview."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse

from pgjobs.admin import marks
from pgjobs.admin.ages import moment
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.health.errors import JOBS_COUNTED, ErrorGroup, error_groups

UNNAMED = "none"
"""Stands in the address for jobs without a fingerprint."""

_MOST_LATELY = 5
_MESSAGE = 300
_CLOCK = "SELECT clock_timestamp()"


def clock() -> datetime:
    """The database's."""
    at: datetime = rows(get_settings().database, _CLOCK, {})[0][0]
    return at


def address(site: Any, fingerprint: str) -> str:
    """The page of one cause."""
    name = quote(fingerprint or UNNAMED)
    return reverse("admin:pgjobs_errorgroup_change", args=[name], current_app=site.name)


def lately(site: Any, at: datetime | None) -> list[dict[str, Any]]:
    """The causes of the last hour, most failures first. ``at`` is the database's time, if it is known already."""
    found = [group for group in error_groups().groups if group.last_hour]
    found.sort(key=lambda group: -group.last_hour)
    now = at or clock()
    return [row(group, now, site) for group in found[:_MOST_LATELY]]


def row(group: ErrorGroup, at: datetime, site: Any) -> dict[str, Any]:
    """The cells of one cause."""
    first = (group.message.splitlines() or [""])[0][:_MESSAGE]
    return {
        "url": address(site, group.fingerprint),
        "fingerprint": group.fingerprint or "no fingerprint",
        "error": group.error_class or "error",
        "message": first,
        "job_type": group.job_type,
        "queue": group.queue,
        "jobs": marks.count(group.jobs, JOBS_COUNTED),
        "last_hour": f"{group.last_hour:,}",
        "first_seen": moment(group.first_seen, at),
        "last_seen": moment(group.last_seen, at),
    }
