"""How much the lab does, and how long that should take."""

import math
from dataclasses import dataclass

from example_project.lab.strategies import ALL

START_SECONDS = 2.0  # of a runworkers command
WORST_NAIVE = 3.2  # executions per job, as published for 16 workers; only used to foresee the time
ROWS_PER_SECOND = 30_000  # inserted into the product's table with its indexes, roughly
JOBS_PER_SECOND = 700  # through one worker process behind a held snapshot, roughly
SLOTS_PER_PROCESS = 8


@dataclass(frozen=True)
class Plan:
    """Sizes of a run. The defaults are the full run."""

    strategies: tuple[str, ...] = ALL
    workers: tuple[int, ...] = (1, 2, 4, 8, 16)
    jobs: int = 400
    milliseconds: float = 200
    activity_workers: int = 8
    activity_milliseconds: tuple[float, ...] = (200, 3000)
    activity_rounds: int = 4
    """Jobs per worker while pg_stat_activity is sampled."""
    pending: int = 500
    completed: int = 500_000
    future: int = 1_000_000
    dead: int = 50_000
    job_seconds: float = 24
    lease_seconds: float = 10
    heartbeat_seconds: float = 3
    sample_seconds: float = 1

    def cell_seconds(self, strategy: str, workers: int) -> float:
        """Expected time of one cell of the throughput table."""
        repeated = WORST_NAIVE if strategy == "naive" and workers > 1 else 1.05
        started = START_SECONDS if strategy == ALL[-1] else 0.1
        return self.jobs * self.milliseconds / 1000 / workers * repeated + started

    def activity_seconds(self, milliseconds: float) -> float:
        return self.activity_rounds * milliseconds / 1000 + 1.0

    def buried_seconds(self) -> float:
        return (self.completed + self.future) / ROWS_PER_SECOND + self.churn_seconds() + 2 * START_SECONDS

    def churn_seconds(self) -> float:
        """Workers settle this many jobs while a snapshot slows them down."""
        return self.dead / JOBS_PER_SECOND

    def crash_seconds(self) -> float:
        """Killed at a twelfth of the job, reaped half a lease after its lease ended, then the whole job again."""
        return self.job_seconds * 13 / 12 + self.lease_seconds * 1.5 + 2 * START_SECONDS

    def seconds(self) -> float:
        cells = sum(
            self.cell_seconds(strategy, workers) for strategy in self.strategies for workers in self.workers
        )
        activity = 3 * sum(map(self.activity_seconds, self.activity_milliseconds))
        return cells + activity + self.buried_seconds() + self.crash_seconds() + 5


QUICK = Plan(
    workers=(1, 4, 16),
    jobs=48,
    milliseconds=50,
    activity_workers=4,
    activity_milliseconds=(200, 600),
    activity_rounds=3,
    completed=50_000,
    future=50_000,
    dead=4_000,
    job_seconds=4,
    lease_seconds=2,
    heartbeat_seconds=0.6,
    sample_seconds=0.5,
)


def processes_and_slots(workers: int) -> tuple[int, int]:
    """A worker process of the product has slots: up to 8 workers are one process, 16 are two of 8."""
    processes = math.ceil(workers / SLOTS_PER_PROCESS)
    return processes, math.ceil(workers / processes)
