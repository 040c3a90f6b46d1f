"""How far ahead a process claims: a moment before an end that is foreseen, and never behind jobs of unknown length."""

import threading
from collections.abc import Callable

import pytest

from pgjobs.leases.states import Lease
from pgjobs.models import Job
from pgjobs.queue.attempts import ClaimedJob
from pgjobs.worker import clock
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.pace import Pace
from pgjobs.worker.producer import Producer
from pgjobs.worker.slots import Slots
from pgjobs.worker.statistics import Statistics
from pgjobs.workflows.registry import workflows
from tests.jobsapp.jobs import ok
from tests.leases.factories import columns, pending
from tests.support.own_database import QUEUE
from tests.support.waiting import wait_until
from tests.workflows.rows import execution

TYPE = ok.job_type


def running(seconds: float, job_type: str = TYPE) -> Holding:
    """A job that began so many seconds ago."""
    job = ClaimedJob(Lease(1, None, "w"), job_type, "{}", 1, 0, 5, None, False, False, "default", 0.0)  # type: ignore[arg-type]
    return Holding(job, clock.now() + 30, started_at=clock.now() - seconds)


def pace_of(*seconds: float) -> Pace:
    pace = Pace(1)
    for each in seconds:
        pace.note(TYPE, each)
    return pace


def test_an_end_is_foreseen_after_two_of_the_same_length() -> None:
    assert pace_of(5, 0.2).ending([running(0.19)])[0] == 0
    pace = pace_of(5, 0.2, 0.205)

    soon, next_one = pace.ending([running(0.0), running(0.1), running(0.19), running(0.21), running(0.3)])

    assert soon == 2, "that one which is about to end, and the one that is late by less than they differ"
    assert next_one == pytest.approx(0.07, abs=0.01)
    assert pace.ending([running(0.19, "tests.other")])[0] == 0


def test_what_differs_is_not_foreseen() -> None:
    assert pace_of(0.2, 0.2, 0.25).ending([running(0.19)]) == (0, float("inf"))
    pace = pace_of(0.2, 0.2, 0.2)
    pace.forget()
    assert pace.ending([running(0.19)])[0] == 0 and not pace.foresees()


def test_short_jobs_are_held_ready_and_others_are_not() -> None:
    assert pace_of(*[0.0001] * 200).ahead() > 100
    assert pace_of(*[0.2] * 200).ahead() == 0


class Blocking:
    """What runs in the slot: ends when it is told to."""

    def __init__(self) -> None:
        self.door = threading.Event()

    def is_async(self, holding: Holding) -> bool:
        return False

    def run(self, holding: Holding) -> None:
        self.door.wait(30)


def producer_of(slots: Slots, pace: Pace, on_claimed: Callable[[], None] = lambda: None) -> Producer:
    """A claim loop that is turned by hand."""
    return Producer(
        QUEUE,
        WorkerOptions(),
        slots,
        Holdings(30, None),
        pace=pace,
        statistics=Statistics(using=QUEUE),
        hearing=lambda: True,
        on_claimed=on_claimed,
        on_drained=lambda: None,
        on_suspects=lambda: None,
    )


@pytest.mark.django_db(transaction=True)
def test_the_settler_is_told_of_jobs_and_not_of_executions() -> None:
    told: list[str] = []
    blocking = Blocking()
    slots = Slots(2, blocking, lambda: None)
    producer = producer_of(slots, Pace(2), lambda: told.append("claimed"))
    made = execution("enqueued", workflow_name=workflows.names()[0])

    producer.tick()
    made.refresh_from_db()
    assert (made.status, told) == ("running", [])
    pending(job_type=TYPE)
    producer.wake()
    producer.tick()

    assert told == ["claimed"]
    blocking.door.set()
    slots.close()


@pytest.mark.django_db(transaction=True)
def test_the_next_job_is_claimed_for_a_foreseen_end_and_goes_back_when_that_is_late() -> None:
    blocking = Blocking()
    slots = Slots(1, blocking, lambda: None)
    producer = producer_of(slots, pace_of(0.2, 0.2))
    first, second, third = pending(3, job_type=TYPE)

    producer.tick()
    [running] = slots.running()
    running.started_at = clock.now()
    assert held(first, second, third) == [True, False, False]
    producer.tick()
    assert producer.interval == pytest.approx(0.17, abs=0.05), "until a moment before the foreseen end"
    running.started_at -= 0.19
    producer.tick()
    assert held(first, second, third) == [True, True, False]
    assert producer.interval <= 0.1

    wait_until(lambda: slots.stalled(0.1), message="the time for which a claim for a foreseen end may wait")
    producer.tick()

    assert held(first, second, third) == [True, False, False]
    assert columns(second, "status", "attempt_count") == ("pending", 0)
    blocking.door.set()
    slots.close()


def held(*ids: int) -> list[bool]:
    statuses = dict(Job.objects.values_list("pk", "status"))
    return [statuses[pk] == "running" for pk in ids]
