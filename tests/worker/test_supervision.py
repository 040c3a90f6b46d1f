"""The parent keeps its children alive, gives back what dead ones held, and does not outlive its purpose."""

import resource
import signal
import sys
from collections.abc import Callable

import pytest
from django.db import connection

from pgjobs.health.chores import read_processes
from pgjobs.health.reading import Reader
from pgjobs.models import Activity, Job, Worker
from tests.jobsapp.jobs import hold, ok
from tests.support.waiting import wait_until
from tests.support.workers import Spawner
from tests.worker.conftest import Gate, Spawn, hurried
from tests.worker.observation import deeds, row, wait_ended, wait_for_deed

pytestmark = pytest.mark.workers

LONG = ("--lease-seconds", "300", "--heartbeat-seconds", "1", "--poll-seconds", "0.2")


def test_a_dead_childs_jobs_come_back_long_before_their_lease_ends(
    spawn: Spawn, gate: Callable[[str], Gate]
) -> None:
    door = gate("door")
    workers = spawn(clock=LONG, processes=2, concurrency=1)
    jobs = [hold.enqueue(key=f"job {n}", gate=str(door)) for n in range(2)]
    victim = wait_for_deed("job 0:start")
    wait_for_deed("job 1:start")

    workers.signal(signal.SIGKILL, victim.pid)

    wait_until(lambda: row(jobs[0].pk).crash_count == 1, 20, "the crash in the books")
    wait_until(lambda: len(deeds("job 0:start")) == 2, 30, "the second attempt")
    door.open()
    ended = wait_ended(jobs)
    lost, unharmed = (ended[job.pk] for job in jobs)
    assert (lost.status, lost.attempt_count, lost.crash_count) == ("succeeded", 2, 1)
    assert [(entry["kind"], entry["worker"]) for entry in lost.errors] == [("lost", victim.worker)]
    assert (unharmed.status, unharmed.attempt_count, unharmed.crash_count) == ("succeeded", 1, 0)
    regular = lambda: [name for name in workers.names if ".suspect" not in name]  # noqa: E731
    wait_until(lambda: len(regular()) == 3, message="the dead child's successor")
    assert len(workers.names) == len(set(workers.names)) == Worker.objects.count()
    assert Worker.objects.get(name=victim.worker).stopped_at is not None


def test_children_do_not_outlive_their_supervisor(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    workers = spawn("--grace-seconds", "0.5", clock=LONG, processes=2, concurrency=1)
    job = hold.enqueue(key="orphan", gate=str(gate("never")))
    wait_for_deed("orphan:start")

    workers.signal(signal.SIGKILL)

    wait_until(lambda: not workers.family(), 30, lambda: f"the end of {workers.family()}")
    left = row(job.pk)
    assert (left.status, left.attempt_count, left.crash_count, left.errors) == ("pending", 0, 0, [])


def test_many_reapers_count_each_crash_once(spawn: Spawn, spawn_workers: Spawner) -> None:
    """Rows of a type that nobody here knows, and so nobody but reapers touches."""
    reaper = [sys.executable, "manage.py", "runreaper", "--interval", "0.1"]
    reapers = [spawn_workers.start(reaper, env=hurried()) for _ in range(2)]
    spawn(processes=2, settings={"REAP_SECONDS": 0.1})
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (job_type, status, attempt_count, crash_count, lease_owner, lease_token, "
            "lease_expires_at, heartbeat_at) SELECT 'another.release', 'running', 1 + n %% 2 * 2, n %% 2 * 2, "
            "'gone', gen_random_uuid(), now() - interval '90 days', now() - interval '91 days' "
            "FROM generate_series(1, %s) AS n",
            [2_000],
        )

    wait_until(lambda: not Job.objects.filter(status="running").exists(), 60, "the reapers")

    assert {process.process.poll() for process in reapers} == {None}
    with Reader("default") as reader:
        told = read_processes(reader).reapers
    assert len(told) == 2 and all(each.chores and set(each.chores) == {"reaper"} for each in told)
    seen = set(Job.objects.values_list("status", "attempt_count", "crash_count", "errors__0__worker"))
    assert seen == {("pending", 1, 1, "gone"), ("dead", 3, 3, "gone")}
    assert {len(errors) for errors in Job.objects.values_list("errors", flat=True)} == {1}
    assert Job.objects.filter(status="dead").count() == 1_000

    reapers[0].signal(signal.SIGTERM)
    assert reapers[0].wait() == 0


def test_reaping_once(spawn_workers: Spawner, worker_env: object) -> None:
    once = spawn_workers.start([sys.executable, "manage.py", "runreaper", "--once"])

    assert once.wait() == 0, once.output()


def test_drain_ends_when_nothing_is_runnable(spawn: Spawn) -> None:
    from datetime import timedelta

    done = [ok.enqueue(value=n) for n in range(30)]
    later = ok.using(run_after=timedelta(hours=1)).enqueue()
    elsewhere = ok.using(queue="elsewhere").enqueue()

    workers = spawn("--drain", processes=2, concurrency=2, queues="default", wait=False)

    assert workers.wait(60) == 0, workers.output()
    told = "The drain is over. Left behind of default: 1 not due yet (the next in 59 min "
    assert told in workers.output()
    assert {job.status for job in wait_ended(done, 1).values()} == {"succeeded"}
    assert {(row(job.pk).status, row(job.pk).attempt_count) for job in (later, elsewhere)} == {("pending", 0)}
    assert not workers.family()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux's")
def test_a_machine_that_cannot_give_a_process_costs_only_that_one(
    spawn: Spawn, gate: Callable[[str], Gate]
) -> None:
    door = gate("door")
    workers = spawn(clock=LONG, processes=2, concurrency=1)
    job = hold.enqueue(key="goes on", gate=str(door))
    busy = wait_for_deed("goes on:start")
    [other] = [pid for pid in workers.child_pids if pid != busy.pid]
    soft, hard = resource.prlimit(workers.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(workers.pid, resource.RLIMIT_NOFILE, (3, hard))  # no further file, pipe or socket

    workers.signal(signal.SIGKILL, other)

    wait_until(lambda: "cannot be started yet" in workers.output(), 20, "the failure")
    door.open()
    assert wait_ended([job])[job.pk].attempt_count == 1
    resource.prlimit(workers.pid, resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: len(workers.names) == 3, 30, "the dead child's successor")
    died = wait_until(lambda: Activity.objects.filter(kind="worker_stopped").first(), 10, "a line of it")
    assert died.details["end"] == "killed by SIGKILL"
    assert workers.process.poll() is None
