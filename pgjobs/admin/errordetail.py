"""The page of one cause: how many, since when, what its jobs share, what was done about it, a text for a ticket."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse

from pgjobs.admin import audited, charts, errorrows, errorverbs, marks, tracebacks
from pgjobs.admin.ages import moment
from pgjobs.admin.limits import panel
from pgjobs.bulk.models import BulkOperation
from pgjobs.conf import get_settings
from pgjobs.health.errorgroup import WAITING, GroupDetail, group_detail
from pgjobs.health.errors import JOBS_COUNTED
from pgjobs.health.phrases import many
from pgjobs.queue.standing import Standing
from pgjobs.redaction import redacted_text

_BULKS = 5


def content(model_admin: Any, request: HttpRequest, fingerprint: str) -> dict[str, Any]:
    """What the page shows."""
    site = model_admin.admin_site
    found = panel(lambda: group_detail(fingerprint))
    group: GroupDetail | None = found.value
    if group is None:
        return {"group": found, "fingerprint": fingerprint or "no fingerprint", "interval": 0}
    jobs = reverse("admin:pgjobs_job_changelist", current_app=site.name)
    may_see_bulk = request.user.has_perm("pgjobs.view_bulkoperation")
    return {
        "group": found,
        "fingerprint": fingerprint or "no fingerprint",
        "head": _head(group),
        "chart": _chart(group),
        "standing": errorrows.standing_of(group.standing, group.at),
        "known": bool(group.standing and group.standing.holds),
        "key": quote(fingerprint),
        "seen": errorrows.seen(fingerprint, group.standing),
        "next": request.path,
        "jobs_url": f"{jobs}?{urlencode({'q': f'fp:{fingerprint}'})}" if fingerprint else "",
        "plans": [
            (status, errorverbs.planned(request, site, fingerprint, status)) for status in group.statuses
        ],
        "newest": [(str(pk), model_admin.url_of(pk)) for pk in group.newest_ids],
        "oldest": [(str(pk), model_admin.url_of(pk)) for pk in group.oldest_ids],
        "sample": _sample(group),
        "siblings": _siblings(group, site),
        "bulks": panel(lambda: _bulks(fingerprint, group, site)) if may_see_bulk and fingerprint else None,
        "audit": audited.panel_of(errorverbs.KIND, fingerprint, group.at) if fingerprint else None,
        "ticket": _ticket(group),
        **errorverbs.context(request, site),
    }


def _head(group: GroupDetail) -> dict[str, Any]:
    hour = group.hours[0]
    shared = [
        (trait, [(value, str(count), count == group.shared_of) for value, count in values])
        for trait, values in group.shared.items()
    ]
    retrying = f"at least {group.retrying:,}" if group.retrying_is_cut else f"{group.retrying:,}"
    return {
        "error": group.error_class or "error",
        "message": errorrows.without_class(group.message, group.error_class),
        "job_type": group.job_type,
        "jobs": marks.count(group.jobs, JOBS_COUNTED),
        "last_hour": f"{hour:,}" + ("+" if group.is_cut and hour >= group.looked_at else ""),
        "retrying": retrying,
        "waiting": str(WAITING) if group.retrying_is_cut else "",
        "queue": group.queue,
        "first_seen": moment(group.first_seen, group.at),
        "last_seen": moment(group.last_seen, group.at),
        "first_version": group.first_version or "not known",
        "shared": shared,
        "shared_of": str(group.shared_of),
    }


def _chart(group: GroupDetail) -> Any:
    begins = [group.at.astimezone(UTC) - timedelta(hours=hour + 1) for hour in range(len(group.hours))]
    bars = [
        charts.Bar(f"{at:%H:%M} to {at + timedelta(hours=1):%H:%M}", 0, count)
        for at, count in zip(begins[::-1], group.hours[::-1], strict=True)
    ]
    worst = max(bars, key=lambda bar: bar.bad)
    told = f"{many(sum(group.hours), 'job')} ended by this cause in the last 24 h"
    if worst.bad:
        told += f", most of them, {worst.bad:,}, from {worst.label} UTC"
    if group.is_cut:
        told += f"; only its newest {group.looked_at:,} jobs were looked at"
    return charts.failures("Failures by this cause, last 24 h", f"{told}.", bars)


def _sample(group: GroupDetail) -> dict[str, Any]:
    text = str(group.sample.get("traceback") or "")
    attempt, budget = group.sample_attempts
    return {
        "id": str(group.newest_ids[0]),
        "attempts": f"attempt {attempt} of {budget}",
        "traceback": tracebacks.shown(text) if text else "",
        "text": text,
    }


def _siblings(group: GroupDetail, site: Any) -> list[dict[str, Any]]:
    return [
        {
            "url": errorrows.address(site, name),
            "error": error or "error",
            "name": name[:12],
            "last_seen": moment(at, group.at),
        }
        for name, error, at in group.siblings
    ]


def _bulks(fingerprint: str, group: GroupDetail, site: Any) -> list[dict[str, Any]]:
    found = BulkOperation._base_manager.using(get_settings().database)
    latest = found.filter(filter__fingerprint=fingerprint).order_by("-pk")[:_BULKS]
    return [
        {
            "url": reverse("admin:pgjobs_bulkoperation_change", args=[each.pk], current_app=site.name),
            "what": f"{each.pk}: {each.verb.replace('_', ' ')}",
            "state": marks.state(each.state, each.get_state_display()),
            "done": f"{each.done:,} done, {each.failed:,} failed again",
            "by": each.actor,
            "at": moment(each.created_at, group.at),
            "reason": redacted_text(each.reason),
        }
        for each in latest
    ]


def _ticket(group: GroupDetail) -> str:
    """The cause as Markdown."""
    shared = ", ".join(
        f"{trait} {values[0][0]} ({values[0][1]})" for trait, values in group.shared.items() if values
    )
    first = f"{group.first_seen:%Y-%m-%d %H:%M:%S %Z}" if group.first_seen else "unknown"
    lines = [
        f"### {group.error_class or 'Error'}: {' '.join(group.message.split())[:300]}",
        f"- job type `{group.job_type}`, {many(group.jobs, 'job', JOBS_COUNTED)}, fingerprint "
        f"`{group.fingerprint or 'none'}`",
        f"- first seen {first}, on version {group.first_version or 'unknown'}; {_state(group.standing)}",
        f"- the newest {group.shared_of} share: {shared}",
        f"- newest jobs: {', '.join(map(str, group.newest_ids))}",
        "```",
        str(group.sample.get("traceback") or "")[-4_000:],
        "```",
    ]
    return "\n".join(lines)


def _state(standing: Standing | None) -> str:
    return "open" if standing is None or not standing.holds else standing.told()
