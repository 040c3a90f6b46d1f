"""What every measurement is given, and the loop that takes one after another."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from django.core.management import call_command
from django.db import connection

from example_project.benchmark.fleet import LOOK_SECONDS, Fleet
from example_project.demo.crew import DemoError


@dataclass(frozen=True)
class Sizes:
    """How much of each thing; from the command line."""

    jobs: int = 20_000
    processes: int = 1
    concurrency: int = 10
    singles: int = 1_000
    bulk: int = 10_000
    pickups: int = 200
    idle_seconds: float = 20.0
    executions: int = 10
    steps: int = 200
    completed: int = 500_000
    future: int = 1_000_000
    churn: int = 50_000
    slow_jobs: int = 400
    slow_milliseconds: int = 200
    replayed: int = 1_000
    sleepers: int = 100_000


@dataclass(frozen=True)
class Bench:
    """A migrated, empty database behind Django's connection, and processes to work on it."""

    fleet: Fleet
    folder: Path
    sizes: Sizes

    def clear(self) -> None:
        """Empty the tables, and settle the server down: no checkpoint and no vacuum of earlier work to come."""
        with connection.cursor() as cursor:
            cursor.execute(
                "TRUNCATE pgjobs_job, pgjobs_jobresult, pgjobs_worker, pgjobs_execution, pgjobs_stepoutput, "
                "pgjobs_wait, pgjobs_message RESTART IDENTITY"
            )
            cursor.execute("VACUUM ANALYZE pgjobs_job, pgjobs_execution, pgjobs_stepoutput, pgjobs_wait")

    def one(self, text: str) -> tuple[float, ...]:
        """The first row that ``text`` selects."""
        with connection.cursor() as cursor:
            cursor.execute(text)
            return tuple(cursor.fetchone())

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Until it holds. Raises DemoError after ``seconds``, ChildFailed when a process ends."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.fleet.check()
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not happen in {seconds:g} s, so nothing was measured.")
            time.sleep(LOOK_SECONDS)


Measurement = Callable[[Bench], Mapping[str, float]]
"""Takes the names of its values from figures.MEANINGS."""


def take(
    measurements: Mapping[str, Measurement], bench: Bench, say: Callable[[str], None]
) -> dict[str, float]:
    """Every measurement on empty tables; the values of all."""
    call_command("migrate", "pgjobs", verbosity=0, interactive=False)
    values: dict[str, float] = {}
    for name, measure in measurements.items():
        say(f"measuring {name} ...")
        bench.clear()
        values |= measure(bench)
    return values
