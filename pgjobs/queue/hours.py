"""Figures per hour: what the minutes of an hour that has ended add up to, so that days are read from few rows.

Made of the minutes alone, so that they hold whatever version of pgjobs had counted.
"""

from __future__ import annotations

from pgjobs.connections import rows
from pgjobs.queue.rollups import BOUNDS

_AT_ONCE = 4
_PRUNED_AT_ONCE = 5_000

# The newest first: what people look at is there at once, also where days are to be caught up with. A flush that began
# in an hour has landed two minutes after its end.
_MISSING = """
SELECT ended.hour FROM generate_series(
    date_bin('1 hour', clock_timestamp() - interval '2 minutes', 'epoch') - interval '1 hour',
    clock_timestamp() - make_interval(secs => %(age)s), interval '-1 hour') AS ended(hour)
WHERE EXISTS (SELECT FROM pgjobs_minute WHERE minute >= ended.hour AND minute < ended.hour + interval '1 hour')
  AND NOT EXISTS (SELECT FROM pgjobs_hour AS kept WHERE kept.hour = ended.hour)
LIMIT %(limit)s"""


def summed_up(column: str) -> str:
    """SQL: an array of counts by bucket, added up over a group. Element by element, four times as fast as unnest."""
    sums = ", ".join(f"sum({column}[{place}])::bigint" for place in range(1, len(BOUNDS) + 2))
    return f"array_remove(ARRAY[{sums}], NULL)"


# Two who add up one hour do the same: the second finds the rows there. Lock order: by key.
_ADD_UP = f"""
INSERT INTO pgjobs_hour (hour, queue, job_type, done, failed, dead, retried, wait_seconds, run_seconds, wait_counts,
                         run_counts)
SELECT %(hour)s::timestamptz, queue, job_type, sum(done), sum(failed), sum(dead), sum(retried), sum(wait_seconds),
       sum(run_seconds), {summed_up("wait_counts")}, {summed_up("run_counts")}
FROM pgjobs_minute
WHERE minute >= %(hour)s::timestamptz AND minute < %(hour)s::timestamptz + interval '1 hour'
GROUP BY queue, job_type ORDER BY queue, job_type
ON CONFLICT (hour, queue, job_type) DO NOTHING"""  # noqa: S608 - names of columns

_PRUNE = """
DELETE FROM pgjobs_hour WHERE (hour, queue, job_type) IN (
    SELECT hour, queue, job_type FROM pgjobs_hour
    WHERE hour < clock_timestamp() - make_interval(secs => %(age)s)
    ORDER BY hour, queue, job_type LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING 1"""


def add_up(days: float, *, using: str) -> bool:
    """Add up a few hours that have ended and are not yet there, of the last ``days``; whether all are there now."""
    missing = rows(using, _MISSING, {"age": days * 86_400, "limit": _AT_ONCE})
    for (hour,) in missing:
        rows(using, _ADD_UP, {"hour": hour})
    return len(missing) < _AT_ONCE


def prune(days: float, *, using: str) -> int:
    """Remove the hours that are older, in batches. How many rows went."""
    total = 0
    while gone := len(rows(using, _PRUNE, {"age": days * 86_400, "limit": _PRUNED_AT_ONCE})):
        total += gone
        if gone < _PRUNED_AT_ONCE:
            break
    return total
