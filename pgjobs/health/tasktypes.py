"""Types of jobs over time: which got slow, which fails more than before, which takes the capacity."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.health.reading import Reader
from pgjobs.health.series import Point
from pgjobs.queue.hours import summed_up
from pgjobs.queue.rollups import NUMBERS, Tally, percentile

MOST = 1_000
"""Types that one look tells apart, those that ran longest first."""
RANGES = {"1h": 60, "24h": 24 * 60, "7d": 7 * 24 * 60}
"""Minutes by name. An hour is read from minutes, longer ranges from hours: 24 of them, the present one included."""

_HOUR = dt.timedelta(hours=1)
_WITHOUT_HOURS = dt.timedelta(hours=3)
_POINTS = 100

# The ends of the table by its key: a probe each.
_CLOCK = """
SELECT statement_timestamp(), (SELECT max(hour) FROM pgjobs_hour), (SELECT min(hour) FROM pgjobs_hour)"""

_SUMS = f"""sum(done)::bigint, sum(failed)::bigint, sum(dead)::bigint, sum(retried)::bigint, sum(wait_seconds),
       sum(run_seconds), {summed_up("wait_counts")}, {summed_up("run_counts")}"""
_COLUMNS = f"queue, job_type, {', '.join(NUMBERS)}"
_FROM = f"""
FROM (SELECT hour AS at, {_COLUMNS}, wait_counts, run_counts FROM pgjobs_hour
      WHERE hour >= %(hours)s::timestamptz AND hour < %(minutes)s::timestamptz
      UNION ALL
      SELECT minute, {_COLUMNS}, wait_counts::integer[], run_counts::integer[] FROM pgjobs_minute
      WHERE minute >= %(minutes)s::timestamptz) AS figures"""  # noqa: S608

_TABLE = f"""
SELECT job_type, at >= %(since)s::timestamptz, {_SUMS}
{_FROM} GROUP BY 1, 2 ORDER BY sum(run_seconds) DESC LIMIT %(most)s"""

# One read for the whole, for each stretch of time and for each queue.
_ONE = f"""
SELECT late, queue, began, {_SUMS}
FROM (SELECT *, at >= %(since)s::timestamptz AS late,
             floor(extract(epoch FROM at) / %(step)s)::bigint * %(step)s::bigint AS began {_FROM}
      WHERE job_type = %(job_type)s) AS chosen
GROUP BY GROUPING SETS ((late), (late, queue), (late, began))"""  # noqa: S608 - names of columns


class Sums(Tally):
    """What came of the attempts of one stretch. Percentiles are seconds, right to within a factor of two."""

    __slots__ = ()

    @property
    def runs(self) -> int:
        """Attempts that ended."""
        return self.done + self.bad

    @property
    def bad(self) -> int:
        """Those that did not succeed."""
        return self.failed + self.dead + self.retried

    @property
    def fail_share(self) -> float:
        """Of the attempts, 0 to 1."""
        return self.bad / self.runs if self.runs else 0.0

    @property
    def retries_per_success(self) -> float | None:
        """None when nothing succeeded."""
        return self.retried / self.done if self.done else None

    def run(self, share: float) -> float | None:
        """How long ``share`` of the attempts ran at most."""
        return percentile(self.run_counts, share)

    def wait(self, share: float) -> float | None:
        """How long ``share`` of them waited at most."""
        return percentile(self.wait_counts, share)


NOTHING = Sums()


@dataclass(frozen=True, slots=True)
class Change:
    """How a type does, against the same range before."""

    words: str
    weight: float
    """For sorting: the factor by which it got worse; below 1 when it got better."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One type in the range."""

    job_type: str
    now: Sums
    before: Sums | None
    """None when the figures do not reach back so far."""
    share: float
    """Of the time that all types ran together, 0 to 1."""
    change: Change


@dataclass(frozen=True, slots=True)
class Span:
    """What was read."""

    clock: dt.datetime
    since: dt.datetime
    before: dt.datetime
    """Where the range for comparison begins."""
    reaches: dt.datetime
    """From when on there are figures in this range."""

    @property
    def is_whole(self) -> bool:
        """Whether the figures cover the range itself."""
        return self.reaches <= self.since

    @property
    def compares(self) -> bool:
        """Whether they cover enough of the range before to compare with: half of it."""
        return self.reaches <= self.since - (self.since - self.before) / 2


@dataclass(frozen=True, slots=True)
class TaskTable:
    """All types that ran in the range."""

    span: Span
    rows: list[TaskRow]
    complete: bool
    """False when there are more than :data:`MOST`."""


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """One type from near."""

    span: Span
    row: TaskRow
    points: list[Point]
    """None left out, the oldest first."""
    queues: list[tuple[str, Sums]]
    """The busiest first."""


def task_table(range_name: str = "1h", *, using: str | None = None, timeout: str | None = None) -> TaskTable:
    """Every type that ran in one of :data:`RANGES`, by the time that it took. Raises what the database raises."""
    with Reader(using or get_settings().database, timeout) as reader:
        span, params = _span(reader, range_name)
        found = reader.ask(_TABLE, **params, most=2 * MOST)
    present = {job_type: Sums(*sums) for job_type, late, *sums in found if late}
    earlier = {job_type: Sums(*sums) for job_type, late, *sums in found if not late}
    total = sum(each.run_seconds for each in present.values())
    rows = [_row(name, sums, earlier.get(name, NOTHING), total, span) for name, sums in present.items()]
    return TaskTable(span, rows[:MOST], len(found) < 2 * MOST)


def task_detail(job_type: str, range_name: str = "1h", *, using: str | None = None) -> TaskDetail:
    """One type in one of :data:`RANGES`. Raises what the database raises."""
    step = max(-(-RANGES[range_name] // _POINTS), 1) * 60
    step = step if range_name == "1h" else -(-step // 3600) * 3600
    with Reader(using or get_settings().database) as reader:
        span, params = _span(reader, range_name)
        found = reader.ask(_ONE, **params, job_type=job_type, step=step)
    whole: dict[bool, Sums] = {}
    queues: dict[str, Sums] = {}
    points: dict[int, Sums] = {}
    for late, queue, began, *sums in found:
        if queue is None and began is None:
            whole[late] = Sums(*sums)
        elif late and queue is not None:
            queues[queue] = Sums(*sums)
        elif late:
            points[began] = Sums(*sums)
    now = whole.get(True, NOTHING)
    first = int(span.since.timestamp()) // step * step
    every = range(first, int(span.clock.timestamp()) + 1, step)
    return TaskDetail(
        span,
        _row(job_type, now, whole.get(False, NOTHING), now.run_seconds, span),
        [_point(at, points.get(at, NOTHING)) for at in every],
        sorted(queues.items(), key=lambda item: -item[1].runs),
    )


def _span(reader: Reader, range_name: str) -> tuple[Span, dict[str, Any]]:
    """Where the figures of a range stand: those of hours as far as they are added up, those of minutes after that."""
    ((clock, newest, oldest),) = reader.ask(_CLOCK)
    length = dt.timedelta(minutes=RANGES[range_name])
    unit = dt.timedelta(minutes=1) if range_name == "1h" else _HOUR
    epoch = dt.datetime.fromtimestamp(0, dt.UTC)
    since = epoch + (clock - epoch) // unit * unit - length + unit
    before = since - length
    if range_name == "1h":
        minutes = reaches = before
    elif newest is None:
        minutes = reaches = max(before, clock - _WITHOUT_HOURS)
    else:
        minutes, reaches = max(newest + _HOUR, before), max(oldest, before)
    span = Span(clock, since, before, reaches)
    return span, {"since": since, "hours": before, "minutes": minutes}


def _row(name: str, now: Sums, before: Sums, total: float, span: Span) -> TaskRow:
    known = before if span.compares else None
    share = now.run_seconds / total if total else 0.0
    return TaskRow(name, now, known, share, _change(now, known))


def _point(at: int, sums: Sums) -> Point:
    times = (sums.wait(0.5), sums.wait(0.95), sums.run(0.5), sums.run(0.95))
    return Point(
        dt.datetime.fromtimestamp(at, dt.UTC), sums.done, sums.failed, sums.dead, sums.retried, *times
    )


_FEW = 5
"""Fewer attempts, or fewer failures, tell nothing."""
_FACTOR = 2.0
"""What is known to within a factor of two has changed when it differs by more."""


def _change(now: Sums, before: Sums | None) -> Change:
    if before is None or now.runs < _FEW:
        return Change("-", 1.0)
    if before.runs < _FEW:
        return Change("new", 1.0)
    told = [*_failing(now, before), *_slower("p95", now.run(0.95), before.run(0.95))]
    told += _slower("wait", now.wait(0.95), before.wait(0.95))
    if not told:
        return Change("steady", 1.0)
    return Change(", ".join(words for words, _ in told), max(told, key=lambda each: abs(each[1] - 1))[1])


def _failing(now: Sums, before: Sums) -> Iterable[tuple[str, float]]:
    if max(now.bad, before.bad) < _FEW:
        return
    if not before.bad:
        yield "fails now", float(now.bad)
    elif not now.bad:
        yield "fails no more", 0.0
    elif not 1 / _FACTOR < (factor := now.fail_share / before.fail_share) < _FACTOR:
        yield f"fail {_times(factor)}", factor


def _slower(name: str, now: float | None, before: float | None) -> Iterable[tuple[str, float]]:
    if now and before and not 1 / _FACTOR < (factor := now / before) < _FACTOR:
        yield f"{name} {_times(factor)}", factor


def _times(factor: float) -> str:
    return f"×{factor:.3g}" if factor >= 1 else f"÷{1 / factor:.3g}"
