"""Throughput and waiting times as charts, from the figures per minute that workers write."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from django.utils.safestring import SafeString

from pgjobs.admin import charts
from pgjobs.admin.ages import seconds_in_words
from pgjobs.health import series
from pgjobs.health.phrases import many
from pgjobs.health.workers import WorkerRow
from pgjobs.queue.rollups import BOUNDS

RANGES = {"60m": 60, "6h": 360, "24h": 1_440, "7d": 10_080}
"""Minutes by name."""

_BARS = 20  # of a sparkline


def chosen(name: str) -> str:
    """A name of :data:`RANGES`, whatever the address says."""
    return name if name in RANGES else "60m"


def both(name: str, queue: str | None = None) -> list[SafeString]:
    """The two charts of a range."""
    points = series.throughput(minutes=RANGES[name], queue=queue)
    return [_throughput(points, name, {}), _waiting(points, name)]


def overall(
    name: str, queues: Sequence[str], workers: Iterable[WorkerRow]
) -> tuple[list[SafeString], dict[str, SafeString]]:
    """The two charts of everything, and a sparkline for each of these queues.

    There are marks where the first of the workers with a new version of the code started.
    """
    points, ends = series.by_queue(queues, minutes=RANGES[name])
    sparks = {queue: _spark(counts, name) for queue, counts in ends.items()}
    return [_throughput(points, name, _deployed(points, workers)), _waiting(points, name)], sparks


def _spark(counts: list[int], name: str) -> SafeString:
    wide = -(-len(counts) // _BARS)
    summed = [sum(counts[start : start + wide]) for start in range(0, len(counts), wide)]
    return charts.sparkline(f"{sum(counts):,} ended in the last {name}", summed)


def _deployed(points: list[series.Point], workers: Iterable[WorkerRow]) -> dict[int, str]:
    """By the place of a stretch, what began in it. The oldest version that is known is no new one."""
    first: dict[str, datetime] = {}
    for worker in workers:
        if worker.code_version:
            began = worker.started_at
            first[worker.code_version] = min(first.get(worker.code_version, began), began)
    told: dict[int, list[str]] = {}
    for version in sorted(first, key=first.__getitem__)[1:]:
        place = bisect_right(points, first[version], key=lambda point: point.at) - 1
        if place >= 0:
            told.setdefault(place, []).append(version)
    return {place: f"{' and '.join(versions)} started" for place, versions in told.items()}


def of_task(points: list[series.Point], name: str) -> list[SafeString]:
    """The charts of one type of job: the same two, and how long it ran."""
    return [_throughput(points, name, {}), _waiting(points, name), _running(points, name)]


def histogram(counts: Sequence[int], name: str) -> SafeString:
    """Run times by bucket."""
    bounds = [*(seconds_in_words(bound) for bound in BOUNDS), "longer"]
    shown = list(zip(bounds, counts, strict=False))
    told = "No attempt has ended in this time."
    if total := sum(counts):
        most = max(range(len(counts)), key=counts.__getitem__)
        least = f"{bounds[most - 1]} and " if most else "0 and "
        told = f"{many(total, 'attempt')}; most of them, {counts[most]:,}, ran between {least}{bounds[most]}."
    return charts.histogram(f"Run times, last {name}", told, shown, "attempts")


def _throughput(points: list[series.Point], name: str, marks: dict[int, str]) -> SafeString:
    done, bad = sum(point.done for point in points), sum(point.bad for point in points)
    worst = max(points, key=lambda point: point.bad, default=None)
    told = f"{many(done, 'job')} done and {many(bad, 'attempt')} failed in {name}."
    if worst and worst.bad:
        told += f" Most failures, {worst.bad:,}, at {_label(worst.at, name)}."
    told += "".join(f" {text} at {_label(points[place].at, name)}." for place, text in marks.items())
    bars = [
        charts.Bar(_label(point.at, name, marks.get(place, "")), point.done, point.bad, marks.get(place, ""))
        for place, point in enumerate(points)
    ]
    return charts.bars(f"Throughput, last {name}", told, bars, ("done", "failed attempts"))


def _running(points: list[series.Point], name: str) -> SafeString:
    ends = [(point.run_p50, point.run_p95) for point in points]
    return _times(f"Run time, last {name}", "attempts ran", points, ends, name)


def _waiting(points: list[series.Point], name: str) -> SafeString:
    ends = [(point.wait_p50, point.wait_p95) for point in points]
    return _times(f"Waiting time, last {name}", "jobs waited", points, ends, name)


def _times(
    title: str,
    what: str,
    points: list[series.Point],
    ends: list[tuple[float | None, float | None]],
    name: str,
) -> SafeString:
    """The median and the 95th percentile of each stretch, in seconds."""
    medians, most = [median for median, _ in ends], [p95 for _, p95 in ends]
    known = [p95 for p95 in most if p95 is not None]
    told = "No attempt has ended in this time."
    if known:
        told = (
            f"19 of 20 {what} less than {seconds_in_words(known[-1])} of late, and less than "
            f"{seconds_in_words(max(known))} at worst; each to within a factor of two."
        )
    labels = [_label(point.at, name) for point in points]
    return charts.lines(title, told, labels, {"p50 (s)": medians, "p95 (s)": most})


def _label(at: datetime, name: str, mark: str = "") -> str:
    at = at.astimezone(UTC)
    shown = f"{at:%d %b %H:%M}" if name == "7d" else f"{at:%H:%M}"
    return f"{shown} {mark}".rstrip()
