"""The overview as lines of text."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.db import Error, connections

from pgjobs.conf import get_settings
from pgjobs.health.overview import Overview, Totals
from pgjobs.health.phrases import counted, span
from pgjobs.health.queues import QueueRow
from pgjobs.health.series import throughput
from pgjobs.health.verdict import Severity
from pgjobs.health.work import LATELY_LIMIT
from pgjobs.health.workers import WorkerRow
from pgjobs.management.screen import clean, columns
from pgjobs.queue.stats import COUNT_LIMIT

_SCREEN = 24
"""Lines that all of it should take."""
_PROBLEMS, _QUEUES, _FEW_QUEUES = 6, 12, 4
_BARS = "▁▂▃▄▅▆▇█"
_HEAD = ("QUEUE", "READY", "OLDEST", "RUN/CAP", "IN/m", "DONE/m", "FAIL%", "WRK", "STATE")


def lines(look: Overview, *, queue: str | None, style: Any) -> list[str]:
    """What ``pgjobs_status`` prints; of one queue, when ``look`` is narrowed to it."""
    verdict = look.verdict
    told = [*_head(look, style, verdict.state, len(verdict.problems))]
    for place, problem in enumerate(verdict.problems[:_PROBLEMS], 1):
        paint = style.ERROR if problem.severity is Severity.CRITICAL else style.WARNING
        told.append(f"{place:2} {paint(problem.code)}  {clean(problem.why)}")
        told.append(f"   try: {clean(problem.cure)}")
    if len(verdict.problems) > _PROBLEMS:
        told.append(f"   and {len(verdict.problems) - _PROBLEMS} more")
    told += [f" ? {style.WARNING(code)}  {clean(why)}" for code, why in verdict.unknown.items()]
    room = _SCREEN - len(told) - 4  # its head, what is left out, totals and workers
    told += _queues(look, queue, min(max(room, _FEW_QUEUES), _QUEUES))
    if queue is None:
        told += [*_totals(look), *_workers(look)]
    return told


def _head(look: Overview, style: Any, state: str, problems: int) -> Iterator[str]:
    settings = connections[get_settings().database].settings_dict
    at = look.verdict.checked_at
    clock = f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC" if at else "the database does not answer"
    words = {
        "ok": style.SUCCESS("OK, nothing is stuck"),
        "problem": style.ERROR(f"PROBLEMS {problems}"),
        "unknown": style.WARNING("CANNOT TELL"),
    }
    place = f"{settings.get('NAME')}@{settings.get('HOST') or 'local'}"
    yield f"pgjobs {clock}  db {clean(place)}  {words[state]}"


def _queues(look: Overview, queue: str | None, most: int) -> list[str]:
    if look.queues is None:
        return [f"QUEUES not available: {clean(look.missing.get('queues', ''))}"]
    if not look.queues:
        return [f"queue {clean(queue)!r} has no work" if queue else "no queue has work"]
    cells = [_HEAD, *map(_row, look.queues[:most])]
    more = [f"and {len(look.queues) - most} more queues"] if len(look.queues) > most else []
    return [*columns(cells, left=(0, 8)), *more]


def _row(row: QueueRow) -> tuple[str, ...]:
    return (
        clean(row.name)[:40],
        counted(row.ready, COUNT_LIMIT),
        span(row.oldest) if row.oldest is not None else "-",
        f"{row.running}/{row.capacity}",
        f"{row.in_per_minute:,.0f}",
        f"{row.done_per_minute:,.0f}",
        "-" if row.failed_share is None else f"{100 * row.failed_share:.1f}",
        str(row.workers),
        row.state if row.state == "ok" else row.state.upper(),
    )


def _totals(look: Overview) -> list[str]:
    totals = look.totals
    if totals is None:
        return [
            f"TOTALS not available: {clean(look.missing.get('totals') or look.missing.get('queues', ''))}"
        ]
    now = look.verdict.checked_at
    dead = counted(totals.dead, get_settings().dead_alert)
    parts = [f"DEAD {dead} (+{counted(totals.dead_last_hour, LATELY_LIMIT)}/h)", _later(totals, now)]
    approvals = f"APPROVALS {counted(totals.approvals, COUNT_LIMIT)}"
    if totals.oldest_approval_at and now:
        approvals += f" (oldest {span(now - totals.oldest_approval_at)})"
    return ["  ".join([*parts, approvals])]


def _later(totals: Totals, now: dt.datetime | None) -> str:
    text = f"LATER {counted(totals.later, COUNT_LIMIT)}"
    return f"{text} (next in {span(totals.next_at - now)})" if totals.next_at and now else text


def _workers(look: Overview) -> list[str]:
    if look.workers is None:
        return [f"WORKERS not available: {clean(look.missing.get('workers', ''))}"]
    here = [row for row in look.workers if _is_told(row)]
    states = Counter(row.state for row in here)
    told = " ".join(f"{n} {state}" for state, n in sorted(states.items())) or "none"
    versions = Counter(row.code_version for row in here if row.is_serving and row.code_version)
    parts = [f"WORKERS {told}"]
    if versions:
        parts.append("versions " + " ".join(f"{clean(v)}x{n}" for v, n in versions.most_common(5)))
    return ["  ".join([*parts, *_throughput(look)])]


def _is_told(row: WorkerRow) -> bool:
    return row.state != "stopped" and row.heartbeat_age < dt.timedelta(days=1)


def _throughput(look: Overview) -> list[str]:
    """A bar for each five minutes of the last hour."""
    if look.totals is None:
        return []
    try:
        ends = [point.done + point.failed + point.dead for point in throughput(minutes=60)]
    except Error:
        return ["throughput not available"]
    sums = [sum(ends[place : place + 5]) for place in range(0, len(ends), 5)]
    top = max(sums) or 1
    bars = "".join(_BARS[min(n * len(_BARS) // top, len(_BARS) - 1)] for n in sums)
    return [f"throughput {bars} {look.totals.done_per_minute:,.0f}/m"]
