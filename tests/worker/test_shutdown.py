"""SIGTERM: nothing new, what runs may finish within the grace, the rest goes back at once and unspent."""

import signal
import time
from collections.abc import Callable

import pytest
from django.db import connection, transaction

from pgjobs.models import Job, Worker
from tests.jobsapp.jobs import effect, hold, until_told_to_stop
from tests.support.waiting import wait_until
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import database_says, deeds, row, wait_for_deed

pytestmark = pytest.mark.workers

# A lease that no test outlives: whatever comes back, comes back because it was given back.
LONG = ("--lease-seconds", "300", "--heartbeat-seconds", "1", "--poll-seconds", "0.2")


def assert_handed_back(job: Job) -> None:
    left = row(job.pk)
    assert (left.status, left.attempt_count, left.crash_count, left.errors) == ("pending", 0, 0, [])
    assert left.lease_owner is None
    assert database_says("available_at <= clock_timestamp() FROM pgjobs_job WHERE id = %s", job.pk)


def test_the_grace(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    door, never = gate("door"), gate("never")
    workers = spawn("--grace-seconds", "3", clock=LONG, concurrency=4)
    endless = hold.enqueue(key="endless", gate=str(never))
    finishing = hold.enqueue(key="finishing", gate=str(door))
    obedient = until_told_to_stop.enqueue(key="obedient")
    for key in ("endless", "finishing", "obedient"):
        wait_for_deed(f"{key}:start")

    workers.signal(signal.SIGTERM)
    wait_for_deed("obedient:stopped")
    late = [effect.enqueue(key="late") for _ in range(3)]
    door.open()

    assert workers.wait(20) == 0, workers.output()
    assert [row(job.pk).status for job in (finishing, obedient)] == ["succeeded", "succeeded"]
    assert_handed_back(endless)
    assert not deeds("late")
    assert {row(job.pk).attempt_count for job in late} == {0}
    assert not workers.family()
    assert Worker.objects.get(name=workers.names[0]).stopped_at is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_second_signal_does_not_wait(
    spawn: Spawn, gate: Callable[[str], Gate], number: signal.Signals
) -> None:
    workers = spawn("--grace-seconds", "100", clock=LONG, concurrency=2)
    endless = hold.enqueue(key="endless", gate=str(gate("never")))
    until_told_to_stop.enqueue(key="obedient")
    wait_for_deed("endless:start"), wait_for_deed("obedient:start")
    workers.signal(number)
    wait_for_deed("obedient:stopped")

    workers.signal(number)

    assert workers.wait(20) == 0, workers.output()
    assert_handed_back(endless)


def test_one_signal_to_the_whole_group_is_one_request(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    """A service manager signals parent and children alike; the parent's word on top is no second request."""
    door = gate("door")
    workers = spawn("--grace-seconds", "60", clock=LONG, concurrency=2)
    finishing = hold.enqueue(key="finishing", gate=str(door))
    until_told_to_stop.enqueue(key="obedient")
    wait_for_deed("finishing:start"), wait_for_deed("obedient:start")

    [child] = workers.child_pids
    workers.signal(signal.SIGTERM, child)
    wait_for_deed("obedient:stopped")
    workers.signal(signal.SIGTERM)
    wait_until(lambda: row_of("obedient").status == "succeeded", message="the settlement")
    signalled_at = time.monotonic()
    wait_until(lambda: time.monotonic() - signalled_at > 0.5, message="a moment to stop too early")
    door.open()

    assert workers.wait(20) == 0, workers.output()
    ended = row(finishing.pk)
    assert (ended.status, ended.attempt_count) == ("succeeded", 1)


def row_of(key: str) -> Job:
    return Job.objects.get(payload__key=key)


def notified_and_waiting() -> int:
    """Claims that wait for a lock, once workers are told of something.

    From another session: this one's notifications go out when it commits, and until then it sees one state of others.
    """
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("NOTIFY pgjobs")
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND query LIKE '%RECURSIVE lanes%'"
            )
            return int(cursor.fetchone()[0])
    finally:
        other.close()


def test_a_claim_that_crosses_the_signal_is_handed_back(spawn: Spawn) -> None:
    workers = spawn("--grace-seconds", "5", clock=LONG, concurrency=4)
    until_told_to_stop.enqueue(key="obedient")
    wait_for_deed("obedient:start")

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE pgjobs_job IN SHARE MODE")  # claims wait, reads do not
        jobs = [effect.enqueue(key="crossing") for _ in range(2)]
        # An idle worker only looks, and sees nothing yet; one that is told of something claims. Told again, since it
        # may not have listened yet.
        wait_until(notified_and_waiting, message="a claim that waits for the lock")
        workers.signal(signal.SIGTERM)
        wait_for_deed("obedient:stopped")

    assert workers.wait(20) == 0, workers.output()
    assert not deeds("crossing")
    for job in jobs:
        assert_handed_back(job)


def test_an_idle_worker_ends_at_once(spawn: Spawn) -> None:
    workers = spawn(processes=2)

    workers.signal(signal.SIGTERM)

    assert workers.wait(10) == 0
    assert Worker.objects.count() == 2
    assert not Worker.objects.filter(stopped_at=None).exists()
