"""The figures at the top of the overview, each a link to what it counts."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from pgjobs.admin import marks
from pgjobs.admin.ages import in_words
from pgjobs.conf import get_settings
from pgjobs.health.overview import Overview, Totals
from pgjobs.health.work import LATELY_LIMIT
from pgjobs.health.workers import WorkerRow

Made = tuple[str, str, str]
"""A figure, what there is to say of it, and its kind: "", "bad", "wait"."""

_UNKNOWN: Made = ("?", "not available", "wait")
_STALE: Made = ("?", "the figures are old", "wait")


def of(seen: Overview, site: Any, *, may_see_workers: bool, may_see_approvals: bool) -> list[dict[str, Any]]:
    """All cards. One whose figure could not be read says so, and shows no zero."""

    def card(label: str, made: Made, name: str, **params: str) -> dict[str, Any]:
        url = reverse(f"admin:pgjobs_{name}_changelist", current_app=site.name)
        value, note, kind = made
        url = f"{url}?{urlencode(params)}" if params else url
        return {"label": label, "value": value, "note": note, "kind": kind, "url": url}

    totals, workers = seen.totals, seen.workers
    codes = {problem.code for problem in seen.verdict.problems}
    lapsed, stale = "LEASE_LOST" in codes, "STATS_STALE" in codes or "STATS_STALE" in seen.verdict.unknown
    found = [
        card("Ready", _ready(totals) if totals else _UNKNOWN, "job", status="ready"),
        card("Running", _running(totals, lapsed) if totals else _UNKNOWN, "runningjob"),
        card("Scheduled", _scheduled(totals, seen) if totals else _UNKNOWN, "job", status="scheduled"),
        card("Dead", _dead(totals) if totals else _UNKNOWN, "deadjob"),
        card("Done per min", _done(totals, stale) if totals else _UNKNOWN, "queue"),
        card("Failures", _failures(totals, stale) if totals else _UNKNOWN, "errorgroup"),
    ]
    if may_see_workers:
        found.append(card("Workers", _workers(workers) if workers is not None else _UNKNOWN, "worker"))
    if may_see_approvals:
        found.append(card("Approvals", _approvals(totals, seen) if totals else _UNKNOWN, "wait"))
    return found


def _ready(totals: Totals) -> Made:
    note = f"oldest {in_words(totals.oldest)}" if totals.oldest else "nothing waits"
    late = totals.oldest and totals.oldest.total_seconds() > get_settings().queue_slo_seconds
    return marks.count(totals.ready), note, "bad" if late else ""


def _running(totals: Totals, lapsed: bool) -> Made:
    note = "a lease is lost" if lapsed else "no lease lost"
    return f"{totals.running:,} of {totals.capacity:,}", note, "bad" if lapsed else ""


def _scheduled(totals: Totals, seen: Overview) -> Made:
    checked = seen.verdict.checked_at
    if totals.next_at is None or checked is None:
        return marks.count(totals.later), "nothing lies in the future", ""
    return marks.count(totals.later), f"next in {in_words(totals.next_at - checked)}", ""


def _dead(totals: Totals) -> Made:
    note = f"+{marks.count(totals.dead_last_hour, LATELY_LIMIT)} in the last hour"
    return dead(totals), note, "bad" if totals.dead_last_hour else ""


def dead(totals: Totals) -> str:
    """How many are dead or failed, as far as they are counted."""
    return marks.count(totals.dead, get_settings().dead_alert)


def _done(totals: Totals, stale: bool) -> Made:
    return _STALE if stale else (f"{totals.done_per_minute:,.3g}", "mean of 5 min", "")


def _failures(totals: Totals, stale: bool) -> Made:
    if stale:
        return _STALE
    if totals.uncounted:  # such as those that a reaper buried: a share of what is counted would be too good
        return "?", f"{totals.uncounted:,} in 5 min that are not counted", "wait"
    if totals.failed_share is None:
        return "-", "no attempt in 5 min", ""
    return f"{totals.failed_share:.1%}", "of the attempts of 5 min", "wait" if totals.failed_share else ""


def _workers(workers: list[WorkerRow]) -> Made:
    there = [worker for worker in workers if worker.state != "stopped"]
    live = sum(worker.is_serving for worker in there)
    silent = [worker for worker in there if worker.state == "silent"]
    note = f"{silent[0].name} silent for {in_words(silent[0].heartbeat_age)}" if silent else "none silent"
    return f"{live} of {len(there)}", note, "bad" if silent or not live else ""


def _approvals(totals: Totals, seen: Overview) -> Made:
    checked = seen.verdict.checked_at
    if not totals.approvals or totals.oldest_approval_at is None or checked is None:
        return marks.count(totals.approvals), "nobody is asked", ""
    overdue = any(problem.code == "APPROVAL_OVERDUE" for problem in seen.verdict.problems)
    note = f"the oldest for {in_words(checked - totals.oldest_approval_at)}"
    return marks.count(totals.approvals), note, "bad" if overdue else "wait"
