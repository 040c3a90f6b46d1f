"""Causes of failures as rows, for the page of errors and for the overview."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgjobs.admin import charts, marks
from pgjobs.admin.ages import moment
from pgjobs.health.errors import HOURS, JOBS_COUNTED, ErrorGroup, ErrorGroups, worst_lately
from pgjobs.queue.acknowledging import followable
from pgjobs.queue.standing import ACKNOWLEDGED, MUTED, Standing, mark
from pgjobs.redaction import redacted_text

UNNAMED = "none"
"""Stands in the address for jobs without a fingerprint."""

_MOST_LATELY = 5
_MESSAGE = 300


def address(site: Any, fingerprint: str) -> str:
    """The page of one cause."""
    name = quote(fingerprint or UNNAMED)
    return reverse("admin:pgjobs_errorgroup_change", args=[name], current_app=site.name)


def lately(site: Any, known: Iterable[str]) -> list[dict[str, Any]]:
    """The causes of the last hour that nobody knows of, most failures first."""
    found = worst_lately(_MOST_LATELY, known=known)
    return [row(group, found, site) for group in found.groups]


def row(group: ErrorGroup, found: ErrorGroups, site: Any) -> dict[str, Any]:
    """The cells of one cause."""
    message = without_class(group.message, group.error_class)
    first = (message.splitlines() or [""])[0][:_MESSAGE]
    return {
        "url": address(site, group.fingerprint),
        "key": quote(group.fingerprint),
        "seen": seen(group.fingerprint, group.standing),
        "error": group.error_class or "error",
        "message": first,
        "job_type": group.job_type,
        "queue": group.queue,
        "jobs": marks.count(group.jobs, JOBS_COUNTED),
        "last_hour": f"{group.last_hour:,}" + ("+" if found.last_hour_is_cut and group.last_hour else ""),
        "hours": _hours(group, found),
        "first_seen": moment(group.first_seen, found.at),
        "first_version": group.first_version,
        "is_new": group.is_new(found.deployed),
        "last_seen": moment(group.last_seen, found.at),
        "state": standing_of(group.standing, found.at),
        "known": bool(group.standing and group.standing.holds),
    }


def without_class(message: str, error_class: str) -> str:
    """What was said, for a place where the class stands beside it."""
    return message.removeprefix(f"{error_class}: ")


def seen(fingerprint: str, standing: Standing | None) -> str:
    """How the cause stood for whoever looks, as the forms of its verbs carry it."""
    return f"{mark(standing)}:{quote(fingerprint)}"


def standing_of(standing: Standing | None, at: Any) -> SafeString:
    """The state, and who said what of it."""
    if standing is None:
        return marks.state("open")
    note = redacted_text(standing.note)
    if not standing.holds:
        told = f"came back on {standing.version}; acknowledged by {standing.by}: {note}"
        return format_html("{} <span class='pgjobs-message'>{}</span>", marks.state("open"), told)
    if standing.state == ACKNOWLEDGED:
        words = format_html("by {} {}: {}", standing.by, moment(standing.since, at), note)
    else:
        words = format_html("by {} until {}: {}", standing.by, moment(standing.until, at), note)
    name = ACKNOWLEDGED if standing.state == ACKNOWLEDGED else MUTED
    return format_html(
        '{} <span class="pgjobs-message">{} {}</span>', marks.state(name), words, _link(standing.link)
    )


def _link(address: str) -> SafeString | str:
    """The ticket; as text where something in it looks like a secret, or is no address of a page."""
    shown = redacted_text(address)
    if shown != address or not followable(address):
        return shown
    return format_html('<a href="{}" rel="noopener noreferrer">{}</a>', address, address)


def _hours(group: ErrorGroup, found: ErrorGroups) -> SafeString:
    """The last day, hour by hour, the present one at the right."""
    title = f"{sum(group.hours):,} in the last {HOURS} hours, at most {max(group.hours):,} in one of them"
    if found.counted_from:
        title += f"; counted from {found.counted_from.astimezone(UTC):%H:%M} UTC on"
    return charts.sparkline(title, group.hours[::-1], "bad")
