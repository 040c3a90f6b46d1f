"""The figures of the published accounts that the lab reproduces, each beside what this run measured."""

from collections.abc import Iterator
from dataclasses import dataclass

from example_project.benchmark.figures import counted, number, percent
from example_project.lab import buried, crash
from example_project.lab.activity import Activity
from example_project.lab.buried import Depth
from example_project.lab.run import Results
from example_project.lab.throughput import Cell, efficiency, find

NOT_MEASURED = "not in this run"


@dataclass(frozen=True)
class Comparison:
    """One published figure; the measured one in the same words."""

    what: str
    published: str
    measured: str


def comparisons(results: Results) -> list[Comparison]:
    return [
        Comparison(what, published, str(measured or NOT_MEASURED))
        for part in (_naive, _locking, _held, _buried, _crash)
        for what, published, measured in part(results)
    ]


Rows = Iterator[tuple[str, str, object]]
"""What, published, measured: text, or something false when this run has no such cell."""


def _naive(results: Results) -> Rows:
    one, two, most = _cells(results, "naive", 1, 2, 16)
    locking = find(results.cells, "skip_locked", 16)
    yield (
        "naive, 16 workers: executions",
        "1,286 for 400 jobs of 200 ms (3.2 per job)",
        most
        and f"{most.executions:,} for {most.jobs} jobs of {most.milliseconds:g} ms "
        f"({most.executions / most.jobs:.1f} per job)",
    )
    yield (
        "naive, 16 workers: rate beside skip_locked",
        "a third",
        most and locking and percent(most.jobs_per_second / locking.jobs_per_second),
    )
    yield (
        "naive, 2 workers beside 1: throughput, work",
        "+15 %, +74 %",
        one
        and two
        and f"{percent(two.jobs_per_second / one.jobs_per_second - 1, signed=True)}, "
        f"{percent(two.wasted, signed=True)}",
    )
    worst = _worst(results)
    yield (
        "naive: the job handed out most",
        "to six workers within 2.2 ms",
        worst and f"to {worst.worst_workers} workers, first to last {number(worst.worst_within_ms)} ms",
    )


def _locking(results: Results) -> Rows:
    one, most = _cells(results, "skip_locked", 1, 16)
    every = [cell for cell in results.cells if cell.strategy == "skip_locked"]
    yield (
        "skip_locked: hand-outs beyond one per job",
        "none with 1 to 16 workers",
        f"{sum(cell.duplicates for cell in every)} with {_range(every)} workers" if every else None,
    )
    yield (
        "skip_locked, 16 workers: rate beside linear",
        "within 2 %",
        most and percent(efficiency(results.cells, most) - 1, 1, signed=True),
    )
    for workers, cell, published in ((1, one, "1.32 ms"), (16, most, "1.68 ms")):
        yield (
            f"skip_locked, {counted(workers)}: median claim",
            published,
            cell and f"{number(cell.claim_p50_ms)} ms",
        )


def _held(results: Results) -> Rows:
    held, locking = find(results.cells, "held", 16), find(results.cells, "skip_locked", 16)
    yield (
        "held, 16 workers: rate beside skip_locked",
        "4 % faster",
        held and locking and percent(held.jobs_per_second / locking.jobs_per_second - 1, 1, signed=True),
    )
    yield ("held, 16 workers: median claim", "0.86 ms", held and f"{number(held.claim_p50_ms)} ms")
    activities = {a.milliseconds: a for a in results.activities if a.strategy == "held"}
    first = next(iter(activities.values()), None)
    yield (
        "held: connections idle in transaction",
        "8 of 8 workers",
        first and f"{first.idle_in_transaction} of {first.workers} workers",
    )
    published = {200.0: "0.2 s at jobs of 200 ms", 3000.0: "2.52 s at jobs of 3 s"}
    for milliseconds in sorted({*published, *activities}):
        found = activities.get(milliseconds)
        yield (
            "held: oldest snapshot",
            published.get(milliseconds, "–"),
            found and _age(found),
        )


def _buried(results: Results) -> Rows:
    depths = {depth.table: depth for depth in results.depths}
    for name, published in (
        (buried.EMPTY, "index scan, 7 buffers, 0.032 ms"),
        (buried.DEEP, "the same plan, 4 buffers, 0.021 ms over 500,000 rows"),
        (buried.UNINDEXED, "sequential scan and sort, 10,216 buffers, 27.6 ms"),
    ):
        depth = depths.get(name)
        yield (
            f"claim with {name}" if name != buried.UNINDEXED else "claim without the index",
            published,
            depth and _plan(depth),
        )
    partial, full = (*results.indexes, None, None)[:2]
    yield (
        "full index beside the partial one",
        "about 475 times as large",
        partial and full and f"{full.bytes / partial.bytes:,.0f} times as large",
    )


def _crash(results: Results) -> Rows:
    story = results.story
    at_reaping = [s for s in story.samples if s.event == crash.OVERDUE]
    lost = next((s for s in at_reaping if s.job == story.lost_job), None)
    healthy = next((s for s in at_reaping if s.worker == "B"), None)
    yield (
        "crash: the lost job before it is taken back",
        "12 s later still running, lease 5 s overdue, heartbeat 15 s old (lease 10 s)",
        lost
        and f"{story.reaped_at - story.killed_at:.0f} s later still {lost.status}, lease "
        f"{-(lost.lease_left or 0):.1f} s overdue, heartbeat "
        f"{lost.heartbeat_age or 0:.1f} s old (lease {story.lease_seconds:g} s)",
    )
    yield (
        "crash: the healthy worker's lease then",
        "9 s left",
        healthy and f"{healthy.lease_left:.1f} s left",
    )
    jobs = sorted(story.finished_by)
    succeeded = sum(story.last(job).status == "succeeded" for job in jobs)
    yield (
        "crash: the end",
        "3 succeeded, job 1 with attempt_count 2, 3 results",
        f"{succeeded} succeeded, job {story.lost_job} with attempt_count {story.last(story.lost_job).attempts}, "
        f"{story.results} results",
    )


def _cells(results: Results, strategy: str, *workers: int) -> list[Cell | None]:
    return [find(results.cells, strategy, count) for count in workers]


def _worst(results: Results) -> Cell | None:
    naive = [cell for cell in results.cells if cell.strategy == "naive"]
    return max(naive, key=lambda cell: (cell.worst_workers, -cell.worst_within_ms), default=None)


def _range(cells: list[Cell]) -> str:
    counts = sorted(cell.workers for cell in cells)
    return f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])


def _age(activity: Activity) -> str:
    return f"{activity.oldest_snapshot_seconds:.2f} s at jobs of {activity.milliseconds:g} ms"


def _plan(depth: Depth) -> str:
    return (
        f"{depth.node.lower()}, {depth.find_buffers:,} buffers to find the job, {depth.buffers:,} with its update, "
        f"{number(depth.milliseconds)} ms over {depth.beneath:,} rows"
    )
