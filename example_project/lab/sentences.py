"""What the data says, in sentences made from it: none of them can be true of a run that did not show it."""

from collections.abc import Sequence

from example_project.benchmark.figures import number, percent
from example_project.lab import buried
from example_project.lab.activity import Activity
from example_project.lab.buried import Depth, IndexSize
from example_project.lab.crash import Story
from example_project.lab.strategies import ALL
from example_project.lab.throughput import Cell, efficiency


def of_handouts(cells: Sequence[Cell]) -> list[str]:
    """One sentence a strategy, and one on the worst job of all."""
    said = []
    for strategy in _strategies(cells):
        own = [cell for cell in cells if cell.strategy == strategy]
        guilty = max(own, key=lambda cell: cell.duplicates)
        if not guilty.duplicates:
            said.append(
                f"{strategy}: every job was handed out exactly once, with {_counts(own)} workers "
                f"({sum(cell.executions for cell in own):,} hand-outs for {sum(cell.jobs for cell in own):,} jobs)."
            )
            continue
        said.append(
            f"{strategy}: {guilty.executions:,} hand-outs for {guilty.jobs:,} jobs with {guilty.workers} workers, "
            f"{percent(guilty.wasted)} more work than there was; attempt_count says {guilty.attempt_drift:,} attempts "
            "too many, and no error was raised."
        )
    worst = max(cells, key=lambda cell: (cell.worst_workers, cell.worst_handouts), default=None)
    if worst is not None and worst.worst_workers > 1:
        said.append(
            f"Job {worst.worst_job} ({worst.strategy}, {worst.workers} workers) went to {worst.worst_workers} workers "
            f"within {number(worst.worst_within_ms)} ms."
        )
    elif worst is not None:
        said.append("No job went to two workers in this run.")
    return said


def of_scaling(cells: Sequence[Cell]) -> list[str]:
    """The most workers of each strategy beside its own rate with the fewest."""
    said = []
    for strategy in _strategies(cells):
        own = sorted((cell for cell in cells if cell.strategy == strategy), key=lambda cell: cell.workers)
        few, most = own[0], own[-1]
        if few is most:
            continue
        said.append(
            f"{strategy}: {number(most.jobs_per_second)} jobs/s with {most.workers} workers, "
            f"{percent(efficiency(cells, most))} of {most.workers / few.workers:g} times the rate with {few.workers}."
        )
    return said


def of_activity(activities: Sequence[Activity]) -> list[str]:
    said = []
    for a in activities:
        length = f"{a.strategy}, jobs of {a.milliseconds:g} ms"
        if a.idle_in_transaction:
            said.append(
                f"{length}: up to {a.idle_in_transaction} connections of {a.workers} workers idle in transaction, the "
                f"oldest snapshot {number(a.oldest_snapshot_seconds)} s old; VACUUM had to leave "
                f"{a.dead_after_vacuum:,} dead row versions of a table of {a.churned_rows:,} rows that none of "
                "them had touched."
            )
        else:
            said.append(
                f"{length}: no connection was idle in transaction in {a.samples} samples; VACUUM left "
                f"{a.dead_after_vacuum:,} dead row versions of a table of {a.churned_rows:,} rows."
            )
    return said


def of_depths(depths: Sequence[Depth], indexes: Sequence[IndexSize]) -> list[str]:
    found = {depth.table: depth for depth in depths}
    shallow, deep, bare = (found[name] for name in (buried.EMPTY, buried.DEEP, buried.UNINDEXED))
    same = (shallow.node, shallow.index) == (deep.node, deep.index)
    said = [
        f"With {deep.beneath:,} completed rows beneath, the claim touches {deep.find_buffers:,} buffers to find its "
        f"job ({shallow.find_buffers:,} without them) and reads by {_reading(deep)}{', as before' if same else ''}.",
        f"Without the partial index it reads by {_reading(bare)}: {bare.find_buffers:,} buffers, "
        f"{bare.find_buffers / max(deep.find_buffers, 1):,.0f} times as many.",
    ]
    for name in (buried.AHEAD, buried.DEAD):
        depth = found[name]
        said.append(
            f"With {depth.beneath:,} {name}: {depth.find_buffers:,} buffers to find the "
            f"job, {number(depth.milliseconds)} ms, by {_reading(depth)}."
        )
    partial, full = indexes
    said.append(
        f"The partial index takes {partial.bytes / 1024:,.0f} kB, a full one on the same columns "
        f"{full.bytes / 1024:,.0f} kB, {full.bytes / partial.bytes:,.0f} times as much."
    )
    return said


def of_crash(story: Story) -> list[str]:
    job = story.lost_job
    last = story.last(job)
    by = {"A": "worker A", "B": "worker B", "C": "a process of its own, as every job whose worker died"}
    unfinished = [j for j in story.finished_by if story.last(j).status != "succeeded"]
    return [
        f"Worker A was killed with job {job} in its hands after {story.killed_at:.1f} s; the row went on saying "
        f"running until the reaper came, {story.reaped_at - story.killed_at:.1f} s later.",
        f"Job {job} ended {last.status} at attempt {last.attempts} with {last.crashes} crash on record (as "
        f"{story.recorded_as or 'nothing'!r}), finished by {by.get(story.finished_by[job], 'nobody')}.",
        f"{len(story.finished_by) - len(unfinished)} of {len(story.finished_by)} jobs succeeded and left "
        f"{story.results} results, one for each key."
        if story.results == len(story.finished_by) and not unfinished
        else f"Not every job left its one result: {story.results} results, unfinished {unfinished}.",
    ]


def _reading(depth: Depth) -> str:
    return f"{depth.node.lower()} of {depth.index}" if depth.index else depth.node.lower()


def _strategies(cells: Sequence[Cell]) -> list[str]:
    return [name for name in ALL if any(cell.strategy == name for cell in cells)]


def _counts(cells: Sequence[Cell]) -> str:
    return ", ".join(str(cell.workers) for cell in sorted(cells, key=lambda cell: cell.workers))
