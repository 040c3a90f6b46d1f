"""A worker dies, or seems to: nothing is lost, and a holder that is no holder any more changes nothing."""

import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from pgjobs.models import Job, JobResult
from tests.jobsapp.jobs import effect, hold
from tests.jobsapp.misbehaving import say_when_lost
from tests.support.waiting import wait_until
from tests.support.workers import Spawner, Workers
from tests.worker.conftest import Gate, Spawn, hurried
from tests.worker.observation import database_says, deeds, row, wait_ended, wait_for_deed

pytestmark = pytest.mark.workers

LAPSED = "lease_expires_at < clock_timestamp() FROM pgjobs_job WHERE id = %s"


def kill_host(workers: Workers) -> None:
    """Kills supervisor and child as a power cut would: the supervisor must not see its child die."""
    [child] = workers.child_pids
    workers.signal(signal.SIGSTOP)
    workers.signal(signal.SIGKILL, child)
    workers.signal(signal.SIGKILL)
    workers.wait()


def test_the_story_of_the_crash(spawn: Spawn, spawn_workers: Spawner, gate: Callable[[str], Gate]) -> None:
    door = gate("all")
    doomed = spawn("--no-reaper", concurrency=1)
    jobs = [hold.using(idempotency_key="document-1").enqueue(key="1", gate=str(door))]
    started = wait_for_deed("1:start")
    survivor = spawn("--no-reaper", concurrency=1)
    jobs += [hold.using(idempotency_key=f"document-{n}").enqueue(key=str(n), gate=str(door)) for n in (2, 3)]
    wait_for_deed("2:start")

    kill_host(doomed)

    wait_until(lambda: database_says(LAPSED, jobs[0].pk), 20, "the end of the dead worker's lease")
    lost, healthy, waiting = (row(job.pk) for job in jobs)
    assert (lost.status, lost.attempt_count, lost.lease_owner) == ("running", 1, doomed.names[0])
    assert healthy.status == "running" and not database_says(LAPSED, healthy.pk)
    assert healthy.heartbeat_at > lost.heartbeat_at
    assert (waiting.status, waiting.attempt_count) == ("pending", 0)

    spawn_workers.start([sys.executable, "manage.py", "runreaper", "--interval", "0.2"], env=hurried())
    door.open()
    ended = wait_ended(jobs)

    assert [ended[job.pk].status for job in jobs] == ["succeeded"] * 3
    assert [(ended[job.pk].attempt_count, ended[job.pk].crash_count) for job in jobs] == [
        (2, 1),
        (1, 0),
        (1, 0),
    ]
    assert [len(deeds(f"{n}:end")) for n in (1, 2, 3)] == [1, 1, 1]
    [evidence] = ended[jobs[0].pk].errors
    assert (evidence["kind"], evidence["attempt"], evidence["worker"]) == ("lost", 1, started.worker)
    assert evidence["heartbeat_at"] and started.worker == doomed.names[0]
    produced = dict(JobResult.objects.values_list("idempotency_key", "produced_by"))
    assert produced == {f"document-{n}": ended[job.pk].completed_by for n, job in enumerate(jobs, 1)}
    assert doomed.names[0] not in produced.values() and survivor.names[0] in produced.values()


def test_a_worker_stopped_for_three_leases_changes_nothing(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    lease = ("--lease-seconds", "1.5", "--heartbeat-seconds", "0.4")
    door, never = gate("door"), gate("never")
    zombie = spawn(*lease, concurrency=2, queues="default,zombie")
    talking = say_when_lost.enqueue(key="talking", gate=str(never), talking=True)
    silent = say_when_lost.enqueue(key="silent", gate=str(door), talking=False)
    wait_for_deed("talking:start"), wait_for_deed("silent:start")
    spawn(*lease, queues="default")
    [child] = zombie.child_pids

    stopped_at = time.monotonic()
    zombie.signal(signal.SIGSTOP, child)
    wait_until(lambda: len(deeds("talking:start")) == len(deeds("silent:start")) == 2, 40, "second attempts")
    wait_until(lambda: time.monotonic() - stopped_at > 4.5, message="three leases")
    before = holders()
    zombie.signal(signal.SIGCONT, child)

    assert wait_for_deed("talking:lost").attempt == 1
    ours = effect.using(queue="zombie").enqueue(key="went on")
    assert wait_for_deed("went on").pid == child, zombie.output()
    wait_ended([ours])
    assert holders() == before
    door.open()
    assert wait_for_deed("silent:lost").attempt == 1
    assert wait_ended([silent])[silent.pk].attempt_count == 2
    assert [deed.attempt for deed in deeds("silent:end")] == [2]
    assert row(talking.pk).status == "running"
    assert os.getpgid(child)  # the same process all the while


def holders() -> list[tuple[object, ...]]:
    """Everything of the held jobs that only their present holder may write; its heartbeat is left out."""
    held = Job.objects.filter(status="running").order_by("pk")
    return list(held.values_list("pk", "lease_token", "lease_owner", "attempt_count", "errors", "note"))
