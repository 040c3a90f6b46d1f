"""Which charts the report has, made from the results."""

from collections.abc import Sequence
from itertools import pairwise

from django.utils.safestring import SafeString

from example_project.benchmark.figures import number
from example_project.lab import charts
from example_project.lab.activity import Activity
from example_project.lab.buried import Depth, IndexSize
from example_project.lab.charts import Bar, Line, Segment
from example_project.lab.crash import Sample, Story
from example_project.lab.strategies import ALL
from example_project.lab.throughput import Cell, find, linear

COLOURS = {name: f"c{index}" for index, name in enumerate(ALL, 1)}
WORKER_COLOURS = {"A": "c1", "B": "c3", "C": "c5", "": "waiting"}


def throughput(cells: Sequence[Cell]) -> SafeString:
    """Rates by number of workers, and linear growth of the last strategy measured."""
    counts = sorted({cell.workers for cell in cells})
    names = [name for name in ALL if any(cell.strategy == name for cell in cells)]
    curves = [Line(name, COLOURS[name], _rates(cells, name, counts)) for name in names]
    reference = [cell for cell in cells if cell.strategy == names[-1]]
    ideal = [linear(cells, cell) for cell in sorted(reference, key=lambda cell: cell.workers)]
    curves.append(Line("linear", "waiting", ideal, dashed=True))
    return charts.lines([str(count) for count in counts], curves, "workers", "jobs per second")


def executions(cells: Sequence[Cell]) -> SafeString:
    """Hand-outs of each strategy with the most workers, against the number of jobs."""
    most = max(cell.workers for cell in cells)
    chosen = sorted(
        (cell for cell in cells if cell.workers == most), key=lambda cell: ALL.index(cell.strategy)
    )
    rows = [Bar(c.strategy, c.executions, f"{c.executions:,}", COLOURS[c.strategy]) for c in chosen]
    return charts.bars(rows, f"Hand-outs with {most} workers", chosen[0].jobs, f"{chosen[0].jobs} jobs")


def idle_in_transaction(activities: Sequence[Activity]) -> SafeString:
    rows = [
        Bar(
            f"{a.strategy}, {a.milliseconds:g} ms",
            a.idle_in_transaction,
            f"{a.idle_in_transaction} connections, oldest snapshot {number(a.oldest_snapshot_seconds)} s",
            COLOURS[a.strategy],
        )
        for a in activities
    ]
    return charts.bars(rows, "Connections idle in transaction", max(a.workers for a in activities) * 2.2, "")


def buffers(depths: Sequence[Depth]) -> SafeString:
    rows = [Bar(d.table, d.find_buffers, f"{d.find_buffers:,}", "c4" if d.index else "c1") for d in depths]
    return charts.bars(rows, "Buffers to find a job")


def index_sizes(indexes: Sequence[IndexSize]) -> SafeString:
    rows = [
        Bar(i.index, i.bytes, f"{i.bytes / 1024:,.0f} kB", c)
        for i, c in zip(indexes, ("c4", "c1"), strict=True)
    ]
    return charts.bars(rows, "Size of the indexes")


def crash(story: Story) -> SafeString:
    """A lane for each job: who held it, when its lease had lapsed, and when it waited."""
    jobs = sorted({sample.job for sample in story.samples})
    seconds = max(sample.at for sample in story.samples)
    rows = [(f"job {job}", _segments([s for s in story.samples if s.job == job])) for job in jobs]
    events = sorted(
        {(sample.at, sample.event) for sample in story.samples if sample.event and sample.job == jobs[0]}
    )
    return charts.lanes(rows, events, seconds, "Three jobs over time")


def _rates(cells: Sequence[Cell], name: str, counts: Sequence[int]) -> list[float | None]:
    found = [find(cells, name, count) for count in counts]
    return [cell.jobs_per_second if cell else None for cell in found]


def _segments(samples: Sequence[Sample]) -> list[Segment]:
    return [
        Segment(now.at, following.at, _colour(now), _title(now))
        for now, following in pairwise(samples)
        if now.status != "succeeded"
    ]


def _colour(sample: Sample) -> str:
    if sample.lease_left is not None and sample.lease_left < 0:
        return "lapsed"
    return WORKER_COLOURS[sample.worker]


def _title(sample: Sample) -> str:
    if sample.lease_left is None:
        return f"{sample.at:.1f} s: {sample.status}"
    return f"{sample.at:.1f} s: {sample.status} by {sample.worker}, lease left {sample.lease_left:.1f} s"
