"""Queues as rows, and the pauses in force, for the pages that show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.safestring import SafeString

from pgjobs.admin import charts, marks
from pgjobs.admin.ages import in_words, moment, seconds_in_words
from pgjobs.conf import get_settings
from pgjobs.connections import rows as read
from pgjobs.health.queues import QueueRow
from pgjobs.queue import pauses
from pgjobs.queue.stats import COUNT_LIMIT
from pgjobs.redaction import redacted_text

_SHOWN_AS = {
    "ok": "live",
    "late": "late",
    "paused": "paused",
    "wedged": "wedged",
    "stalled": "stalled",
    "no worker": "silent",
}
_BAD = {"wedged", "stalled", "no worker"}
_CLOCK = "SELECT clock_timestamp()"


def address(site: Any, name: str) -> str:
    """The page of one queue."""
    return reverse("admin:pgjobs_queue_change", args=[quote(name)], current_app=site.name)


def of(
    rows: Iterable[QueueRow], site: Any, sparks: Mapping[str, SafeString] | None = None
) -> list[dict[str, Any]]:
    """The cells; with what ended over time, where that was read."""
    return [_row(each, site) | {"spark": (sparks or {}).get(each.name, "")} for each in rows]


def pauses_in_force() -> list[dict[str, Any]]:
    """Each pause, with what a form that ends it carries."""
    clock = read(get_settings().database, _CLOCK, {})[0][0]
    return [
        {
            "kind": each.kind,
            "name": each.name,
            "reason": redacted_text(each.reason),
            "by": each.by,
            "since": moment(each.since, clock),
            "until": moment(each.until, clock) if each.until else "it is resumed",
            "expected": pauses.mark(each),
        }
        for each in pauses.paused()
    ]


def _row(each: QueueRow, site: Any) -> dict[str, Any]:
    jobs = reverse("admin:pgjobs_job_changelist", current_app=site.name)
    share = each.running / each.capacity if each.capacity else 0.0
    running = f"{each.running:,} of {each.capacity:,}"
    oldest = in_words(each.oldest) if each.oldest is not None else "-"
    return {
        "name": each.name,
        "url": address(site, each.name),
        "jobs_url": f"{jobs}?{urlencode({'status': 'ready', 'queue': each.name})}",
        "ready": marks.count(each.ready, COUNT_LIMIT),
        "oldest": f"{oldest} / {seconds_in_words(each.slo_seconds)}",
        "later": marks.count(each.later, COUNT_LIMIT),
        "running": running,
        "gauge": charts.gauge(share, f"{running} slots in use", "wait" if share >= 1 else "ok"),
        "arrivals": f"{each.in_per_minute:,.3g}",
        "done": f"{each.done_per_minute:,.3g}",
        "failures": "-" if each.failed_share is None else f"{each.failed_share:.1%}",
        "trend": each.trend,
        "workers": str(each.workers),
        "state": marks.state(_SHOWN_AS.get(each.state, "unknown"), each.state),
        "why": each.why,
        "bad": each.state in _BAD,
    }
