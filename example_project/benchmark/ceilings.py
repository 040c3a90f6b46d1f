"""Enqueue, over the same rows written by psycopg alone."""

import os
import statistics
import time
from collections.abc import Callable

import psycopg

from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import QUEUE, noop

ROUNDS = 5
COPY = "COPY pgjobs_job (job_type, queue, payload) FROM STDIN"
INSERT = "INSERT INTO pgjobs_job (job_type, queue, payload) VALUES (%s, %s, %s)"


def measure(bench: Bench) -> dict[str, float]:
    """In turn with what they are measured against; the median of the ratios."""
    row = [noop.job_type, QUEUE, "{}"]
    singles, bulk = range(bench.sizes.singles), bench.sizes.bulk
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:

        def insert() -> None:
            for _ in singles:
                connection.execute(INSERT, row)

        def copy() -> None:
            with connection.transaction(), connection.cursor().copy(COPY) as rows:
                for _ in range(bulk):
                    rows.write_row(row)

        def enqueue() -> None:
            for _ in singles:
                noop.enqueue()

        return {
            "single_of_insert": _ratio(bench, insert, enqueue),
            "bulk_of_copy": _ratio(bench, copy, lambda: noop.enqueue_many([{}] * bulk)),
        }


def _ratio(bench: Bench, bare: Callable[[], object], ours: Callable[[], object]) -> float:
    return statistics.median(_seconds(bench, bare) / _seconds(bench, ours) for _ in range(ROUNDS))


def _seconds(bench: Bench, action: Callable[[], object]) -> float:
    bench.clear()
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
