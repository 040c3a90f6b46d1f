"""Throughput by strategy and number of workers, and how often each job was handed out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from example_project.benchmark.figures import counted, percentile
from example_project.lab import table
from example_project.lab.laboratory import Laboratory
from example_project.lab.plan import processes_and_slots
from example_project.lab.strategies import PRODUCT

TABLES = {True: "pgjobs_job", False: "lab_job"}
COUNTS = """
    SELECT (SELECT count(*) FROM claim_log), (SELECT count(DISTINCT job) FROM claim_log),
           sum(attempt_count), count(*),
           extract(epoch FROM max(completed_at) - (SELECT min(claimed_at) FROM claim_log))::float8
    FROM {table}"""
WORST = """
    SELECT job, count(*), count(DISTINCT worker),
           extract(epoch FROM max(claimed_at) - min(claimed_at))::float8 * 1000 AS within_ms
    FROM claim_log GROUP BY job ORDER BY 3 DESC, 2 DESC, 4, job LIMIT 1"""
LATENCIES = "SELECT latency_ms FROM claim_log WHERE latency_ms IS NOT NULL"
CLAIMS = "SELECT job, worker, claimed_at FROM claim_log ORDER BY claimed_at"


@dataclass(frozen=True)
class Cell:
    """One strategy with one number of workers."""

    strategy: str
    workers: int
    processes: int
    slots: int
    jobs: int
    milliseconds: float
    executions: int
    """Hand-outs, as the claim log counts them."""
    duplicates: int
    wasted: float
    """Duplicates per job."""
    seconds: float
    """First claim to last completion by the database's clock."""
    jobs_per_second: float
    claim_p50_ms: float
    claim_p95_ms: float
    attempt_drift: int
    """Sum of attempt_count beyond one per job, although nothing failed."""
    worst_job: int
    worst_handouts: int
    worst_workers: int
    worst_within_ms: float


@dataclass(frozen=True)
class Handout:
    """A line of the claim log."""

    strategy: str
    workers: int
    job: int
    worker: str
    claimed_at: str


def measure(lab: Laboratory) -> tuple[list[Cell], list[Handout]]:
    """Every cell of the plan, and the claim log of all."""
    cells: list[Cell] = []
    handouts: list[Handout] = []
    for strategy in lab.plan.strategies:
        for workers in lab.plan.workers:
            seconds = lab.plan.cell_seconds(strategy, workers)
            lab.progress.step(f"throughput: {strategy}, {counted(workers)}", seconds)
            cells.append(_cell(lab, strategy, workers, seconds))
            handouts += _handouts(lab, strategy, workers)
    return cells, handouts


def linear(cells: Sequence[Cell], cell: Cell) -> float:
    """Jobs a second if the strategy's rate with the fewest workers grew in step with their number."""
    base = min((c for c in cells if c.strategy == cell.strategy), key=lambda c: c.workers)
    return base.jobs_per_second / base.workers * cell.workers


def efficiency(cells: Sequence[Cell], cell: Cell) -> float:
    """The rate as a fraction of linear."""
    return cell.jobs_per_second / linear(cells, cell)


def find(cells: Sequence[Cell], strategy: str, workers: int) -> Cell | None:
    return next((c for c in cells if (c.strategy, c.workers) == (strategy, workers)), None)


def _cell(lab: Laboratory, strategy: str, workers: int, seconds: float) -> Cell:
    plan, tick = lab.plan, lab.progress.tick
    if strategy == PRODUCT:
        processes, slots = processes_and_slots(workers)
        # Counting the table twenty times a second would cost the workers their processor.
        latencies = lab.product.run(
            workers, plan.jobs, plan.milliseconds, seconds=seconds, tick=tick, pause=0.1
        ).milliseconds
    else:
        processes, slots = workers, 1
        table.seed(lab.connection, plan.jobs)
        lab.plain.run(strategy, workers, plan.milliseconds, seconds=seconds, tick=tick)
        latencies = [row[0] for row in lab.connection.execute(LATENCIES)]
    counts = COUNTS.format(table=TABLES[strategy == PRODUCT])
    executions, distinct, attempts, jobs, span = _row(lab, counts)
    job, handouts, handed_to, within = _row(lab, WORST)
    return Cell(
        strategy=strategy,
        workers=workers,
        processes=processes,
        slots=slots,
        jobs=jobs,
        milliseconds=plan.milliseconds,
        executions=executions,
        duplicates=executions - distinct,
        wasted=(executions - distinct) / jobs,
        seconds=span,
        jobs_per_second=jobs / span,
        claim_p50_ms=percentile(latencies, 50),
        claim_p95_ms=percentile(latencies, 95),
        attempt_drift=int(attempts) - jobs,
        worst_job=job,
        worst_handouts=handouts,
        worst_workers=handed_to,
        worst_within_ms=within,
    )


def _row(lab: Laboratory, statement: str) -> tuple[Any, ...]:
    row = lab.connection.execute(statement).fetchone()
    assert row is not None
    return tuple(row)


def _handouts(lab: Laboratory, strategy: str, workers: int) -> Iterator[Handout]:
    for job, worker, claimed_at in lab.connection.execute(CLAIMS):
        yield Handout(strategy, workers, job, worker, claimed_at.isoformat())
