"""Figures per minute: added up by any number of writers, honest to within a bucket, pruned without falling."""

import random
from typing import Any

import pytest

from pgjobs.queue import rollups
from pgjobs.queue.models import Minute
from pgjobs.queue.rollups import BOUNDS, Tally, percentile, summed
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def tally(*seconds: float, **ends: int) -> Tally:
    made = Tally(**ends)
    for each in seconds:
        made.measure(each, 2 * each)
    return made


def rows() -> list[dict[str, Any]]:
    return list(Minute._base_manager.using(QUEUE).order_by("minute", "queue", "job_type").values())


def test_two_writers_add_to_one_minute_and_to_the_sums() -> None:
    rollups.add({("a", "x"): tally(0.005, 100, done=2)}, using=QUEUE)
    rollups.add({("a", "x"): tally(0.015, done=1, dead=3), ("b", "y"): tally(retried=1)}, using=QUEUE)
    found = rows()
    minutes = {row["minute"] for row in found}
    # The minute may have turned in between.
    assert min(minutes).year == 1970 and 2 <= len(minutes) <= 3
    total = next(row for row in found if row["minute"].year == 1970 and row["queue"] == "a")
    assert (total["done"], total["dead"], total["failed"], total["retried"]) == (3, 3, 0, 0)
    assert total["wait_seconds"] == pytest.approx(100.02) and total["run_seconds"] == pytest.approx(200.04)
    assert sum(total["wait_counts"]) == 3 and total["wait_counts"][:2] == [1, 1]
    parts = [row for row in found if row["minute"].year != 1970 and row["queue"] == "a"]
    assert sum(row["done"] for row in parts) == 3


def test_nothing_counted_is_nothing_written(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        rollups.add({}, using=QUEUE)


def test_old_minutes_go_and_the_sums_stay() -> None:
    rollups.add({("a", "x"): tally(1, done=1)}, using=QUEUE)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_minute (minute, queue, job_type, wait_counts, run_counts) "
            "SELECT now() - make_interval(days => n), 'a', 'x', '{}', '{}' FROM generate_series(1, 20) AS n"
        )
    assert rollups.prune(14, using=QUEUE) == 7
    assert len(rows()) == 15 and rows()[0]["done"] == 1
    assert rollups.prune(14, using=QUEUE) == 0


def silent(days: int, job_type: str = "%") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_minute SET seen_on = now() - make_interval(days => %s) WHERE job_type LIKE %s",
            [days, job_type],
        )


def sums() -> dict[tuple[str, str], int]:
    return {(row["queue"], row["job_type"]): row["done"] for row in rows() if row["minute"].year == 1970}


def test_sums_of_what_is_no_more_are_folded_and_those_of_a_queue_do_not_fall() -> None:
    rollups.add(
        {("a", "x"): tally(1, done=1), ("a", "y"): tally(2, 3, done=2), ("b", "x"): tally(done=4)},
        using=QUEUE,
    )
    silent(139)
    rollups.prune(14, using=QUEUE)
    assert sums() == {("a", "x"): 1, ("a", "y"): 2, ("b", "x"): 4}

    silent(141)
    rollups.add({("a", "x"): tally(1, done=1)}, using=QUEUE)
    rollups.prune(14, using=QUEUE)
    assert sums() == {("a", "x"): 2, ("a", ""): 2, ("b", ""): 4}
    kept = next(row for row in rows() if row["job_type"] == "" and row["queue"] == "a")
    assert (kept["wait_seconds"], sum(kept["run_counts"])) == (5, 2)

    silent(141, job_type="")
    rollups.prune(14, using=QUEUE)
    assert sums() == {("a", "x"): 2, ("a", ""): 2, ("", ""): 4}, "queue a is in use"

    silent(1_000)
    rollups.prune(14, using=QUEUE)
    silent(1_000)
    assert rollups.prune(14, using=QUEUE) == 1 and rollups.prune(14, using=QUEUE) == 0
    assert sums() == {("", ""): 8}


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_percentiles_are_right_to_within_a_factor_of_two(share: float) -> None:
    values = sorted(random.Random(4).lognormvariate(0, 2) for _ in range(5_000))
    made = tally(*values)
    found, true = percentile(made.wait_counts, share), values[int(share * len(values))]
    assert found is not None and 0.5 <= found / true <= 2


def test_percentiles_of_nothing_and_of_what_is_off_the_scale() -> None:
    assert percentile([], 0.5) is None and percentile([0, 0], 0.5) is None
    assert percentile(tally(1e9).wait_counts, 0.5) == BOUNDS[-1]
    assert percentile(tally(0.0).wait_counts, 1.0) == BOUNDS[0]


def test_lists_of_different_length_are_added() -> None:
    assert summed([1, 2, 3], [1]) == summed([1], [1, 2, 3]) == [2, 2, 3]
    assert summed([], []) == []
