"""The numbers of the backlog."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from pgjobs.models import Job, Worker
from pgjobs.queue import stats
from tests.faces.rows import make_job, make_worker

pytestmark = pytest.mark.django_db


def due_since(seconds: float, **columns: Any) -> Job:
    """A job that became due so long ago, by the clock of the database; below zero: it is due later."""
    job = make_job(**columns)
    Job.objects.filter(pk=job.pk).update(available_at=Now() - timedelta(seconds=seconds))
    return job


def test_an_empty_table() -> None:
    assert stats.backlog() == []
    assert stats.unknown_waiting() == []
    assert stats.queue_names() == []


def test_each_queue_is_counted_over_all_its_priorities() -> None:
    for priority, seconds in ((1, 10), (100, 100), (100, -500), (300, -500)):
        due_since(seconds, queue="a", priority=priority)
    due_since(-3600, queue="b", priority=1)
    due_since(50, queue="c", crash_count=1)
    due_since(-50, queue="c", crash_count=2)
    make_job("running", queue="d")
    make_job("succeeded", queue="e")
    found = {each.queue: each for each in stats.backlog()}
    assert {q: (each.due, each.later, each.running) for q, each in found.items()} == {
        "a": (2, 2, 0),
        "b": (0, 1, 0),
        "c": (1, 1, 0),
        "d": (0, 0, 1),
    }
    assert found["a"].oldest_wait is not None
    assert timedelta(seconds=100) <= found["a"].oldest_wait < timedelta(seconds=110)
    assert found["b"].oldest_wait is None and found["d"].oldest_wait is None


def test_live_workers_are_counted_per_queue() -> None:
    due_since(1, queue="a")
    due_since(1, queue="ab")
    make_worker("all", queues=[])
    make_worker("one", queues=["ab"])
    make_worker("stopped", queues=["a"], stopped_at=Now())
    make_worker("silent", queues=["a"])
    Worker.objects.filter(name="silent").update(heartbeat_at=F("heartbeat_at") - timedelta(seconds=31))
    assert {each.queue: each.live_workers for each in stats.backlog()} == {"a": 1, "ab": 2}


def test_counts_stop_one_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "COUNT_LIMIT", 4)
    for priority in (1, 2, 3):
        for _ in range(3):
            due_since(5, queue="a", priority=priority)
            due_since(-5, queue="a", priority=priority)
    (found,) = stats.backlog()
    assert (found.due, found.later) == (5, 5)


def test_types_without_a_handler_are_named_with_their_queue() -> None:
    due_since(10, job_type="jobsapp.ok")
    due_since(30, job_type="gone.type", queue="a")
    due_since(20, job_type="gone.type", queue="a", crash_count=1)
    due_since(-60, job_type="gone.later", queue="b")
    make_job("dead", job_type="gone.dead")
    found = {(each.queue, each.job_type): each for each in stats.unknown_waiting()}
    assert {key: each.jobs for key, each in found.items()} == {("a", "gone.type"): 2, ("b", "gone.later"): 1}
    assert found["a", "gone.type"].oldest_wait >= timedelta(seconds=30)
    assert found["b", "gone.later"].oldest_wait < timedelta()


def test_queues_are_known_by_their_jobs_and_by_their_workers() -> None:
    for queue in ("z", "a", "m", "a"):
        make_job(queue=queue)
    make_job("running", queue="r")
    make_job("succeeded", queue="s")
    make_worker(queues=["w", "a"])
    make_worker("odd", queues={"no": "list"})
    assert stats.queue_names() == ["a", "m", "r", "s", "w", "z"]
