"""One row per queue, for the page of queues and for the overview."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.safestring import SafeString

from pgjobs.admin import charts, marks
from pgjobs.admin.ages import in_words, seconds_in_words
from pgjobs.health.queues import QueueRow
from pgjobs.queue.stats import COUNT_LIMIT

_SHOWN_AS = {"ok": "live", "late": "late", "paused": "paused", "stalled": "stalled", "no worker": "silent"}
_BAD = {"stalled", "no worker"}


def address(site: Any, name: str) -> str:
    """The page of one queue."""
    return reverse("admin:pgjobs_queue_change", args=[quote(name)], current_app=site.name)


def of(
    rows: Iterable[QueueRow], site: Any, sparks: Mapping[str, SafeString] | None = None
) -> list[dict[str, Any]]:
    """The cells; with what ended over time, where that was read."""
    return [_row(each, site) | {"spark": (sparks or {}).get(each.name, "")} for each in rows]


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
