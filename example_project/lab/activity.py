"""What throughput cannot see: transactions that stay open during the work, and the vacuum they hold back."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Self

import psycopg

from example_project.lab import table
from example_project.lab.laboratory import Laboratory
from example_project.lab.strategies import PRODUCT
from example_project.lab.waiting import APPLICATION

STRATEGIES = ("held", "skip_locked", PRODUCT)
CHURNED_ROWS = 2_000
SAMPLE = """
    SELECT count(*) FILTER (WHERE state LIKE 'idle in transaction%%'),
           coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)
               FILTER (WHERE backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)), 0)::float8
    FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"""
CREATE_CHURN = "CREATE TABLE churn AS SELECT number, 0 AS value FROM generate_series(1, {rows}) AS number"
DEAD = """
    SELECT n_dead_tup FROM pg_stat_all_tables
    WHERE relid = 'churn'::regclass"""


@dataclass(frozen=True)
class Activity:
    """One strategy with jobs of one length, sampled all the while."""

    strategy: str
    workers: int
    milliseconds: float
    samples: int
    idle_in_transaction: int
    """Most connections at one sample."""
    idle_in_transaction_median: float
    oldest_snapshot_seconds: float
    """Greatest age of a transaction that holds vacuum back."""
    churned_rows: int
    dead_after_vacuum: int
    """Row versions of the churned table that a VACUUM in the middle of the run had to leave (median of its tries)."""


class Sampler:
    """Looks at pg_stat_activity from a thread and connection of its own until it is told to stop."""

    EVERY_SECONDS = 0.02
    VACUUM_EVERY_SECONDS = 0.25

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self.idle: list[int] = []
        self.ages: list[float] = []
        self.dead: list[int] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        try:
            with psycopg.connect(
                self._url, autocommit=True, application_name="pgjobs_lab_sampler"
            ) as connection:
                vacuumed_at = 0.0
                while not self._ended.wait(self.EVERY_SECONDS):
                    idle, age = self._sample(connection)
                    self.idle.append(idle)
                    self.ages.append(age)
                    if time.monotonic() - vacuumed_at > self.VACUUM_EVERY_SECONDS:
                        self.dead.append(churn(connection))
                        vacuumed_at = time.monotonic()
        except BaseException as error:
            self.error = error

    def _sample(self, connection: psycopg.Connection) -> tuple[int, float]:
        row = connection.execute(SAMPLE, [APPLICATION]).fetchone()
        assert row is not None
        return row[0], row[1]


def churn(connection: psycopg.Connection) -> int:
    """Update every row of the churned table, vacuum, and count the versions that vacuum had to leave."""
    connection.execute("UPDATE churn SET value = value + 1")
    connection.execute("SELECT pg_stat_force_next_flush()")  # or our own update is counted after the vacuum
    connection.execute("VACUUM churn")
    row = connection.execute(DEAD).fetchone()
    assert row is not None
    return int(row[0])


def measure(lab: Laboratory) -> list[Activity]:
    lab.connection.execute(CREATE_CHURN.format(rows=CHURNED_ROWS))
    found = []
    for milliseconds in lab.plan.activity_milliseconds:
        for strategy in STRATEGIES:
            seconds = lab.plan.activity_seconds(milliseconds)
            lab.progress.step(f"open transactions: {strategy}, jobs of {milliseconds:g} ms", seconds)
            found.append(_activity(lab, strategy, milliseconds, seconds))
    return found


def _activity(lab: Laboratory, strategy: str, milliseconds: float, seconds: float) -> Activity:
    workers = lab.plan.activity_workers
    jobs = workers * lab.plan.activity_rounds
    run = _runner(lab, strategy, jobs, milliseconds, seconds)
    with Sampler(lab.url) as sampler:
        run()
    if sampler.error is not None:
        raise sampler.error
    return Activity(
        strategy=strategy,
        workers=workers,
        milliseconds=milliseconds,
        samples=len(sampler.idle),
        idle_in_transaction=max(sampler.idle, default=0),
        idle_in_transaction_median=median(sampler.idle or [0]),
        oldest_snapshot_seconds=max(sampler.ages, default=0.0),
        churned_rows=CHURNED_ROWS,
        dead_after_vacuum=round(median(sampler.dead or [0])),
    )


def _runner(
    lab: Laboratory, strategy: str, jobs: int, milliseconds: float, seconds: float
) -> Callable[[], object]:
    workers, tick = lab.plan.activity_workers, lab.progress.tick
    if strategy == PRODUCT:
        return lambda: lab.product.run(workers, jobs, milliseconds, seconds=seconds, tick=tick)
    table.seed(lab.connection, jobs)
    return lambda: lab.plain.run(strategy, workers, milliseconds, seconds=seconds, tick=tick)
