"""Figures over time, for charts: what ended, how long it waited and ran, from the figures per minute."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.health.reading import Reader
from pgjobs.queue.rollups import percentile

_POINTS = 120

# One read of the table for all: what ended (place 0), the times by bucket (from 1), and what ended in single queues
# (from -2 down). Place -1 is the present minute.
_SERIES = """
WITH chosen AS MATERIALIZED (
    SELECT floor(extract(epoch FROM minute) / %(step)s)::bigint * %(step)s::bigint AS began, done, failed, dead,
           retried, wait_counts, run_counts, queue
    FROM pgjobs_minute
    WHERE minute >= date_trunc('minute', statement_timestamp()) - make_interval(mins => %(minutes)s)
      AND (%(queue)s::text IS NULL OR queue = %(queue)s) AND (%(job_type)s::text IS NULL OR job_type = %(job_type)s)
)
SELECT extract(epoch FROM date_trunc('minute', statement_timestamp()))::bigint, -1, 0, 0, 0, 0
UNION ALL
SELECT began, 0, sum(done)::bigint, sum(failed)::bigint, sum(dead)::bigint, sum(retried)::bigint
FROM chosen GROUP BY began
UNION ALL
SELECT began, -1 - array_position(%(queues)s::text[], queue::text), sum(done + failed + dead)::bigint, 0, 0, 0
FROM chosen WHERE queue = ANY(%(queues)s::text[]) GROUP BY began, queue
UNION ALL
SELECT began, bucket.n, sum(bucket.waits)::bigint, sum(bucket.runs)::bigint, 0, 0
FROM chosen CROSS JOIN LATERAL unnest(wait_counts, run_counts) WITH ORDINALITY AS bucket(waits, runs, n)
GROUP BY began, bucket.n"""


@dataclass(frozen=True, slots=True)
class Point:
    """One stretch of time. Percentiles are seconds, right to within a factor of two; None when nothing ended."""

    at: dt.datetime
    done: int = 0
    failed: int = 0
    dead: int = 0
    retried: int = 0
    wait_p50: float | None = None
    wait_p95: float | None = None
    run_p50: float | None = None
    run_p95: float | None = None

    @property
    def bad(self) -> int:
        """Attempts that did not succeed."""
        return self.failed + self.dead + self.retried


def throughput(
    *, minutes: int = 60, queue: str | None = None, job_type: str | None = None, using: str | None = None
) -> list[Point]:
    """The last ``minutes`` in at most 120 stretches of equal length, none left out, the oldest first.

    Raises what the database raises.
    """
    return _read({"queue": queue, "job_type": job_type, "queues": []}, minutes, using)[0]


def by_queue(
    queues: Sequence[str], *, minutes: int = 60, using: str | None = None
) -> tuple[list[Point], dict[str, list[int]]]:
    """:func:`throughput` of all, and for these queues how many jobs ended in each stretch, by the same read."""
    params = {"queue": None, "job_type": None, "queues": list(queues)}
    points, ends = _read(params, minutes, using)
    places = [int(point.at.timestamp()) for point in points]
    return points, {
        queue: [ends.get((-2 - number, at), 0) for at in places] for number, queue in enumerate(queues)
    }


def _read(
    params: dict[str, Any], minutes: int, using: str | None
) -> tuple[list[Point], dict[tuple[int, int], int]]:
    step = max(math.ceil(minutes / _POINTS), 1) * 60
    params |= {"minutes": minutes - 1, "step": step}
    with Reader(using or get_settings().database) as reader:
        found = reader.ask(_SERIES, **params)
    now, of_queues = 0, {}
    ends: dict[int, list[int]] = {}
    waits: dict[int, list[int]] = defaultdict(list)
    runs: dict[int, list[int]] = defaultdict(list)
    for began, place, *numbers in found:
        if place < -1:
            of_queues[place, began] = numbers[0]
        elif place == -1:
            now = began
        elif place == 0:
            ends[began] = numbers
        else:
            for counts, number in zip((waits[began], runs[began]), numbers, strict=False):
                counts.extend([0] * (place - len(counts)))
                counts[place - 1] = number or 0
    first = (now - (minutes - 1) * 60) // step * step
    points = [_point(at, ends.get(at, ()), waits[at], runs[at]) for at in range(first, now + 1, step)]
    return points, of_queues


def _point(at: int, counts: Sequence[int], waits: list[int], runs: list[int]) -> Point:
    times = [percentile(each, share) for each in (waits, runs) for share in (0.5, 0.95)]
    return Point(dt.datetime.fromtimestamp(at, dt.UTC), *counts, **dict(zip(_TIMES_OF, times, strict=True)))  # type: ignore[arg-type]


_TIMES_OF = ("wait_p50", "wait_p95", "run_p50", "run_p95")
