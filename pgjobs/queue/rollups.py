"""Figures per minute: what workers count in memory, added up in one small table. Bounded by types, not by jobs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db import transaction

from pgjobs.connections import rows

BOUNDS: tuple[float, ...] = tuple(0.01 * 2**n for n in range(21))
"""Upper ends of the buckets, in seconds, from 10 ms to about three hours; one more bucket is for what is longer."""

LIFETIME = "1970-01-01 00:00:00+00"
"""The minute under which the sums of all times stand."""

# Additive, so that any number of workers may write. Lock order: by key.
_ADD = """
INSERT INTO pgjobs_minute AS kept (minute, queue, job_type, done, failed, dead, retried, wait_seconds, run_seconds,
                                   wait_counts, run_counts)
SELECT times.minute, given.queue, given.job_type, given.done, given.failed, given.dead, given.retried,
       given.wait_seconds, given.run_seconds, given.waits::bigint[], given.runs::bigint[]
FROM unnest(%(queues)s::text[], %(types)s::text[], %(done)s::bigint[], %(failed)s::bigint[], %(dead)s::bigint[],
            %(retried)s::bigint[], %(wait_seconds)s::float8[], %(run_seconds)s::float8[], %(waits)s::text[],
            %(runs)s::text[]) AS given(queue, job_type, done, failed, dead, retried, wait_seconds, run_seconds,
                                       waits, runs)
CROSS JOIN (VALUES {minutes}) AS times(minute)
ORDER BY times.minute, given.queue, given.job_type
ON CONFLICT (minute, queue, job_type) DO UPDATE SET
    done = kept.done + EXCLUDED.done, failed = kept.failed + EXCLUDED.failed, dead = kept.dead + EXCLUDED.dead,
    retried = kept.retried + EXCLUDED.retried, wait_seconds = kept.wait_seconds + EXCLUDED.wait_seconds,
    run_seconds = kept.run_seconds + EXCLUDED.run_seconds, wait_counts = {waits}, run_counts = {runs},
    seen_on = clock_timestamp()::date"""

_SUM = """ARRAY(SELECT COALESCE(a, 0) + COALESCE(b, 0)
                FROM unnest(kept.{0}, EXCLUDED.{0}) WITH ORDINALITY AS pair(a, b, n) ORDER BY n)"""

_SUMS = {"waits": _SUM.format("wait_counts"), "runs": _SUM.format("run_counts")}
_OF_ALL_TIMES = f"('{LIFETIME}'::timestamptz)"
_ADD_SQL = _ADD.format(minutes=f"(date_trunc('minute', clock_timestamp())), {_OF_ALL_TIMES}", **_SUMS)
_FOLD_SQL = _ADD.format(minutes=_OF_ALL_TIMES, **_SUMS)

_PRUNE = f"""
DELETE FROM pgjobs_minute WHERE (minute, queue, job_type) IN (
    SELECT minute, queue, job_type FROM pgjobs_minute
    WHERE minute > '{LIFETIME}' AND minute < clock_timestamp() - make_interval(secs => %(age)s)
    ORDER BY minute, queue, job_type LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1"""  # noqa: S608 - one constant

_PRUNED_AT_ONCE = 5_000

# The sums of what has had no end for long: types of a queue first, then a queue that has no type left.
_TAKE_SILENT = f"""
DELETE FROM pgjobs_minute WHERE (minute, queue, job_type) IN (
    SELECT minute, queue, job_type FROM pgjobs_minute AS kept
    WHERE minute = '{LIFETIME}' AND queue <> '' AND seen_on < clock_timestamp() - make_interval(secs => %(age)s)
      AND (job_type <> '' OR NOT EXISTS (
        SELECT FROM pgjobs_minute AS other
        WHERE other.minute = kept.minute AND other.queue = kept.queue AND other.job_type <> ''))
    ORDER BY queue, job_type LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING queue, job_type, done, failed, dead, retried, wait_seconds, run_seconds, wait_counts, run_counts"""  # noqa: S608

_SILENT_FOR = 10
"""Times ``STATISTICS_DAYS``: then sums of a queue and type that had no end since are those of a queue, or of none."""


NUMBERS = ("done", "failed", "dead", "retried", "wait_seconds", "run_seconds")
"""What a row adds up, beside the counts by bucket."""


@dataclass(slots=True)
class Tally:
    """What became of jobs of one type in one queue, as a row has it. Lists are counts by bucket, without the zeros at
    their end."""

    done: int = 0
    failed: int = 0
    dead: int = 0
    retried: int = 0
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    wait_counts: list[int] = field(default_factory=list)
    run_counts: list[int] = field(default_factory=list)

    def measure(self, waited: float, ran: float) -> None:
        """Note one attempt's times, in seconds."""
        self.wait_seconds += waited
        self.run_seconds += ran
        _count(self.wait_counts, waited)
        _count(self.run_counts, ran)

    def add(self, other: Tally) -> None:
        """Take the figures of ``other`` in."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wait_counts = summed(self.wait_counts, other.wait_counts)
        self.run_counts = summed(self.run_counts, other.run_counts)


Tallies = Mapping[tuple[str, str], Tally]
"""By queue and job type."""


def add(tallies: Tallies, *, using: str) -> None:
    """Add what was counted to the present minute, by the database's clock, and to the sums of all times."""
    _add(tallies, _ADD_SQL, using)


def _add(tallies: Tallies, sql: str, using: str) -> None:
    if not tallies:
        return
    each = list(tallies.values())
    params: dict[str, object] = {name: [getattr(tally, name) for tally in each] for name in NUMBERS}
    params["queues"] = [queue for queue, _ in tallies]
    params["types"] = [job_type for _, job_type in tallies]
    params["waits"] = [_array(tally.wait_counts) for tally in each]
    params["runs"] = [_array(tally.run_counts) for tally in each]
    rows(using, sql, params)


def prune(days: float, *, using: str) -> int:
    """Remove the minutes that are older, in batches, and fold the sums of what is no more. How many rows went."""
    total = 0
    while gone := len(rows(using, _PRUNE, {"age": days * 86_400, "limit": _PRUNED_AT_ONCE})):
        total += gone
        if gone < _PRUNED_AT_ONCE:
            break
    return total + _fold_silent(days * _SILENT_FOR, using)


def _fold_silent(days: float, using: str) -> int:
    """Add the sums of types that are no more to those of their queue under no type, and the sums of queues that are no
    more to those under no queue: so rows are bounded by what is in use, and no sum of what is in use falls."""
    with transaction.atomic(using=using):
        gone = rows(using, _TAKE_SILENT, {"age": days * 86_400, "limit": _PRUNED_AT_ONCE})
        folded: dict[tuple[str, str], Tally] = {}
        for queue, job_type, *numbers in gone:
            into = folded.setdefault((queue if job_type else "", ""), Tally())
            into.add(Tally(*numbers))
        _add(folded, _FOLD_SQL, using)
    return len(gone)


def summed(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Counts by bucket, added; the lists may differ in length."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [n + (shorter[i] if i < len(shorter) else 0) for i, n in enumerate(longer)]


def percentile(counts: Sequence[int], share: float) -> float | None:
    """Seconds that ``share`` of the attempts stayed below; None when there were none.

    The buckets double, and within one a value is taken as equally likely everywhere: the answer is right to within a
    factor of two. What is longer than the last bound is answered with that bound.
    """
    wanted = sum(counts) * share
    if not wanted:
        return None
    below = 0
    for index, count in enumerate(counts):
        if count and below + count >= wanted:
            if index >= len(BOUNDS):
                return BOUNDS[-1]
            lower = BOUNDS[index - 1] if index else 0.0
            return lower + (BOUNDS[index] - lower) * (wanted - below) / count
        below += count
    return BOUNDS[-1]


def _count(counts: list[int], seconds: float) -> None:
    bucket = bisect_left(BOUNDS, seconds)
    if bucket >= len(counts):
        counts.extend([0] * (bucket + 1 - len(counts)))
    counts[bucket] += 1


def _array(counts: Sequence[int]) -> str:
    return "{" + ",".join(map(str, counts)) + "}"
