"""Figures of types of jobs: hours added up once, ranges joined, changes told when they are some."""

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from pgjobs.health.tasktypes import Sums, _change, task_detail, task_table
from pgjobs.models import Hour
from pgjobs.queue import hours
from pgjobs.queue.attempts import Ended
from pgjobs.queue.outcomes import Succeeded
from pgjobs.worker import statistics
from tests.leases.factories import running
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def run(sql: str, **params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params or None)


def minute(at: str, **columns: Any) -> None:
    """Figures of one minute; ``at`` is an expression over now()."""
    given = {"queue": "q", "job_type": "a", "done": 1, "wait_counts": "{1}", "run_counts": "{0,1}", **columns}
    names = ", ".join(given)
    values = ", ".join(f"%({name})s" for name in given)
    run(f"INSERT INTO pgjobs_minute (minute, {names}) VALUES ({at}, {values})", **given)  # noqa: S608


_EARLIER = "date_bin('1 hour', now(), 'epoch') - interval '{} hours' + interval '{} minutes'"


def test_hours_are_added_up_once_newest_first_and_only_when_they_have_ended() -> None:
    for ago in range(2, 9):
        minute(_EARLIER.format(ago, 1), done=ago, run_counts="{1,2,3}")
        minute(_EARLIER.format(ago, 59), done=1, run_counts="{0,0,0,4}", dead=2, run_seconds=1.5)
    minute("date_trunc('minute', now())")
    minute("'1970-01-01Z'", done=99)

    assert not hours.add_up(14, using=QUEUE)
    assert Hour.objects.count() == 4
    minute(_EARLIER.format(2, 30), done=500)  # too late to count: the hour was closed
    assert hours.add_up(14, using=QUEUE) and hours.add_up(14, using=QUEUE)
    found = list(Hour.objects.order_by("-hour"))
    assert [each.done for each in found] == [ago + 1 for ago in range(2, 9)]
    assert (found[0].run_counts, found[0].wait_counts) == ([1, 2, 3, 4], [2])
    assert (found[0].dead, found[0].run_seconds) == (2, 1.5)

    age = timezone.now() - found[3].hour + dt.timedelta(minutes=30)
    assert hours.prune(age / dt.timedelta(days=1), using=QUEUE) == 3


def test_a_worker_adds_hours_up_beside_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_FLUSH_EVERY", 0)
    for ago in range(2, 9):
        minute(_EARLIER.format(ago, 1))
    kept = statistics.Statistics(using=QUEUE)
    job = running()
    for hours_there in (4, 7, 7):
        kept.settled([Ended(job, Succeeded("1"))])
        kept.flush_if_due()
        assert Hour.objects.count() == hours_there


def test_a_range_joins_hours_and_the_minutes_after_them() -> None:
    minute(_EARLIER.format(20, 0), done=7, job_type="old")
    minute(_EARLIER.format(3, 0), done=5)
    assert hours.add_up(14, using=QUEUE)
    minute("date_trunc('minute', now())", done=2, dead=3)

    rows = {row.job_type: row for row in task_table("24h").rows}
    assert rows["old"].now.done == 7 and rows["a"].now.done == 7
    assert rows["a"].now.bad == 3
    assert {row.job_type for row in task_table("1h").rows} == {"a"}
    assert task_detail("a", "24h").row.now.done == 7
    assert task_detail("nothing", "24h").row.now.runs == 0


def test_where_hours_are_not_there_yet_the_range_says_from_when_it_is() -> None:
    minute("date_trunc('minute', now()) - interval '10 hours'", done=7)
    minute("date_trunc('minute', now())", done=2)
    found = task_table("24h")
    assert [row.now.done for row in found.rows] == [2]
    assert not found.span.is_whole and not found.span.compares
    assert found.span.clock - found.span.reaches < dt.timedelta(hours=4)
    assert found.rows[0].change.words == "-"


def sums(done: int = 0, bad: int = 0, *buckets: int) -> Sums:
    return Sums(done, 0, 0, bad, 1.0, 1.0, [done + bad], list(buckets) or [done + bad])


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (sums(100), sums(100), "steady"),
        (sums(100), None, "-"),
        (sums(3), sums(100), "-"),
        (sums(100), sums(), "new"),
        (sums(92, 8), sums(100), "fails now"),
        (sums(100), sums(92, 8), "fails no more"),
        (sums(50, 50), sums(90, 10), "fail ×5"),
        (sums(90, 10), sums(50, 50), "fail ÷5"),
        (sums(98, 2), sums(99, 1), "steady"),
        (sums(9, 0, 0, 0, 0, 0, 9), sums(9, 0, 9), "p95 ×16.4"),
    ],
)
def test_a_change_is_told_when_it_is_more_than_what_is_known(
    now: Sums, before: Sums | None, words: str
) -> None:
    change = _change(now, before)
    assert change.words == words
    assert (change.weight > 1) == any(sign in words for sign in ("×", "fails now"))
