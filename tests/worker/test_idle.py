"""A worker process with nothing to do: one statement a look, and nothing missed for it."""

import datetime as dt
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from pgjobs.bulk.control import plan, start
from pgjobs.models import Execution, Job, Minute, Wait
from pgjobs.queue.pauses import pause
from pgjobs.queue.rollups import LIFETIME
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.pace import Pace
from pgjobs.worker.producer import Producer
from pgjobs.worker.slots import Slots
from pgjobs.worker.statistics import Statistics

pytestmark = pytest.mark.django_db(transaction=True)

OK = "jobsapp.ok"
LAPSED = {
    "status": "running",
    "attempt_count": 1,
    "lease_owner": "gone",
    "lease_token": "6f0c2c1e-7a44-4c43-8f5e-0c6f6f0f4a11",
    "lease_expires_at": Now() - timedelta(seconds=5),
}


class Seen:
    """Runs rows by noting them."""

    def __init__(self) -> None:
        self.holdings: list[Holding] = []

    def is_async(self, holding: Holding) -> bool:
        return False

    def run(self, holding: Holding) -> None:
        self.holdings.append(holding)


class Idle:
    """A claim loop that has found nothing, and is turned by hand."""

    def __init__(self) -> None:
        self._seen = Seen()
        self.told = 0
        self.statistics = Statistics(using="default")
        self._slots = Slots(2, self._seen, lambda: None)
        self.producer = Producer(
            "default",
            WorkerOptions(),
            self._slots,
            Holdings(30, None),
            pace=Pace(2),
            hearing=lambda: True,
            on_claimed=lambda: None,
            on_drained=lambda: None,
            on_suspects=self._tell,
            statistics=self.statistics,
        )
        self.producer.tick()

    def turn(self) -> int:
        """One turn by the timer; how many statements it sent."""
        with CaptureQueriesContext(connection) as queries:
            self.producer.tick()
        return len(queries)

    def ran_ids(self) -> list[int]:
        self._slots.wait_idle(10)
        return [holding.lease.pk for holding in self._seen.holdings]

    def close(self) -> None:
        self._slots.close()

    def _tell(self) -> None:
        self.told += 1


@pytest.fixture
def idle() -> Iterator[Idle]:
    idle = Idle()
    yield idle
    idle.close()


@pytest.mark.parametrize(("reap", "least", "most"), [(30, 4, 6), (2, 3.9, 5), (0.4, 0.9, 1)])
def test_a_look_is_one_statement_and_the_sleep_between_two_grows(
    settings: Any, reap: float, least: float, most: float
) -> None:
    """A look for lapsed leases is the same statement."""
    settings.PGJOBS = {**getattr(settings, "PGJOBS", {}), "REAP_SECONDS": reap}
    idle = Idle()
    try:
        sleeps = [idle.producer.interval]
        for _ in range(8):
            assert idle.turn() == 1
            sleeps.append(idle.producer.interval)
        assert sleeps[0] <= 2.5 and least <= sleeps[-1] <= most
        assert not idle.ran_ids() and not idle.told
    finally:
        idle.close()


def test_a_row_that_nobody_announced_is_claimed_at_the_next_look(idle: Idle) -> None:
    pk = Job.objects.create(job_type=OK).pk
    idle.turn()
    assert idle.ran_ids() == [pk]


def test_the_sleep_ends_when_a_future_row_is_due(idle: Idle) -> None:
    Job.objects.create(job_type=OK, available_at=Now() + timedelta(seconds=0.4))
    idle.turn()
    assert idle.producer.interval <= 0.401


def test_what_waits_for_the_next_millennia_costs_nothing(idle: Idle) -> None:
    far = dt.datetime(8999, 12, 31, tzinfo=dt.UTC)
    Job.objects.create(job_type=OK, available_at=far)
    Job.objects.create(job_type=OK, available_at=far, crash_count=1)
    execution = Execution.objects.create(workflow_name="others.flow", status="waiting")
    Wait.objects.create(execution=execution, step_id="nap", kind="sleep", ordinal=1, wake_at=far)

    assert idle.turn() == 1 and idle.turn() == 1
    assert 0.5 < idle.producer.interval <= 5 and not idle.ran_ids() and not idle.told


def test_lapsed_leases_are_taken_back_and_the_supervisor_is_told(idle: Idle) -> None:
    pk = Job.objects.create(job_type="others.work", **LAPSED).pk
    idle.turn()
    job = Job.objects.get(pk=pk)
    assert (job.status, job.crash_count) == ("pending", 1)
    assert idle.told == 1
    idle.statistics.flush()
    figures = Minute.objects.get(minute=LIFETIME, job_type="others.work")
    assert (figures.retried, figures.done, sum(figures.run_counts)) == (1, 0, 0), "an attempt that has failed"


@pytest.mark.parametrize(("end", "status"), [("-infinity", "pending"), ("infinity", "running")])
def test_a_lease_that_was_ended_by_hand_stops_no_look(idle: Idle, end: str, status: str) -> None:
    """PostgreSQL before 17 refuses to take a time from an infinite one."""
    pk = Job.objects.create(job_type="others.work", **LAPSED).pk
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET lease_expires_at = %s", [end])
    other = Job.objects.create(job_type=OK).pk
    idle.turn()
    assert idle.ran_ids() == [other] and Job.objects.values_list("status", flat=True).get(pk=pk) == status


def test_the_sleep_ends_when_a_lease_may_lapse(idle: Idle) -> None:
    for _ in range(6):
        idle.turn()
    assert idle.producer.interval > 3
    held = {**LAPSED, "lease_expires_at": Now() + timedelta(seconds=2)}
    pk = Job.objects.create(job_type="others.work", **held).pk
    assert idle.turn() == 1 and idle.producer.interval <= 2.5

    Job.objects.update(lease_expires_at=Now())
    idle.turn()
    assert Job.objects.get(pk=pk).status == "pending"


def test_suspects_that_somebody_else_took_back_are_told_of(idle: Idle) -> None:
    Job.objects.create(job_type=OK, crash_count=1, available_at=Now() + timedelta(seconds=0.5))
    idle.turn()
    assert idle.told == 1 and not idle.ran_ids()


def test_a_lapsed_row_that_is_locked_does_not_keep_the_loop_turning(idle: Idle) -> None:
    pk = Job.objects.create(job_type="others.work", **LAPSED).pk
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1 FROM pgjobs_job WHERE id = %s FOR UPDATE", [pk])
            idle.turn()
            assert idle.producer.interval > 0.5
    finally:
        other.close()
    assert Job.objects.get(pk=pk).status == "running"


def test_waits_that_are_due_are_ended(idle: Idle) -> None:
    execution = Execution.objects.create(workflow_name="others.flow", status="waiting")
    Wait.objects.create(execution=execution, step_id="nap", kind="sleep", ordinal=1, wake_at=Now())
    idle.turn()
    execution.refresh_from_db()
    assert execution.status == "enqueued"


def test_waits_that_end_by_hand_at_no_time_stop_no_look(idle: Idle) -> None:
    """PostgreSQL before 17 refuses to take a time from an infinite one, and Python knows none."""
    by_end = {}
    for end in ("-infinity", "infinity"):
        by_end[end] = Execution.objects.create(workflow_name="others.flow", status="waiting")
        Wait.objects.create(execution=by_end[end], step_id="nap", kind="sleep", ordinal=1, wake_at=Now())
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE pgjobs_wait SET wake_at = %s WHERE execution_id = %s", [end, by_end[end].pk]
            )
    other = Job.objects.create(job_type=OK).pk
    assert idle.turn() > 1 and idle.ran_ids() == [other], "what is long overdue is tried once a second"
    idle.producer.sweeper.due_in(0)

    idle.turn()

    for execution in by_end.values():
        execution.refresh_from_db()
    assert [each.status for each in by_end.values()] == ["enqueued", "waiting"]
    idle.turn()
    assert idle.turn() == 1 and 0.5 < idle.producer.interval <= 5, "what never ends costs nothing"


def test_what_is_paused_does_not_keep_the_loop_turning(idle: Idle) -> None:
    pause("default", actor="ann", reason="test", until=timedelta(seconds=2))
    Job.objects.create(job_type=OK)

    assert idle.turn() == 1 and not idle.ran_ids()
    assert 0.5 < idle.producer.interval <= 2.001, "it sleeps until the pause ends, or the next poll"


def test_a_bulk_operation_is_seen_in_the_same_look_and_carried(idle: Idle) -> None:
    Job.objects.create(job_type="others.work", status="dead", completed_at=Now())
    operation = plan("retry", {"status": "dead"}, actor="ann", reason="test")
    start(operation.pk, actor="ann")

    idle.turn()

    operation.refresh_from_db()
    assert (operation.state, operation.done) == ("done", 1)
    assert idle.turn() == 1
