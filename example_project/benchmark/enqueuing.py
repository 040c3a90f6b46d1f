"""Jobs a second into the table, one commit each and many in one call, beside the same rows written by psycopg alone."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection as django

from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import QUEUE, noop

TURNS = 10
ROUNDS = 5
UNCOUNTED = 10
PREPARED_AFTER = 5  # uses, as psycopg has it
COPY = "COPY pgjobs_job (job_type, queue, payload) FROM STDIN"
INSERT = "INSERT INTO pgjobs_job (job_type, queue, payload) VALUES (%s, %s, %s)"


def measure(bench: Bench) -> dict[str, float]:
    """No worker runs meanwhile. In turn with what they are measured against; medians of rates and of ratios."""
    row = [noop.job_type, QUEUE, "{}"]
    few, bulk = max(bench.sizes.singles // TURNS, 1), bench.sizes.bulk
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:

        def insert() -> None:
            for _ in range(few):
                connection.execute(INSERT, row)

        def copy() -> None:
            with connection.transaction(), connection.cursor().copy(COPY) as rows:
                for _ in range(bulk):
                    rows.write_row(row)

        def enqueue() -> None:
            for _ in range(few):
                noop.enqueue()

        def in_turn() -> list[tuple[float, float]]:
            for _ in range(UNCOUNTED):  # connections are made, and statements kept, before the clock runs
                noop.enqueue()
            return [(_seconds(insert), _seconds(enqueue)) for _ in range(TURNS)]

        singles = in_turn()
        with _statements_kept():
            kept = in_turn()
        many = [
            (_seconds(copy, bench), _seconds(lambda: noop.enqueue_many([{}] * bulk), bench))
            for _ in range(ROUNDS)
        ]
    return {
        "enqueue_single_per_second": few / statistics.median(ours for _, ours in singles),
        "single_of_insert": statistics.median(bare / ours for bare, ours in singles),
        "single_kept_of_insert": statistics.median(bare / ours for bare, ours in kept),
        "enqueue_bulk_per_second": bulk / statistics.median(ours for _, ours in many),
        "bulk_of_copy": statistics.median(bare / ours for bare, ours in many),
    }


@contextmanager
def _statements_kept() -> Iterator[None]:
    """With Django's option for servers that no pooler is before: psycopg prepares what is sent again and again."""
    options = django.settings_dict["OPTIONS"]
    django.close()
    django.settings_dict["OPTIONS"] = {**options, "prepare_threshold": PREPARED_AFTER}
    try:
        yield
    finally:
        django.close()
        django.settings_dict["OPTIONS"] = options


def _seconds(action: Callable[[], object], cleared: Bench | None = None) -> float:
    if cleared is not None:
        cleared.clear()
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
