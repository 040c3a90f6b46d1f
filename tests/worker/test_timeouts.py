"""Handlers that run past their timeout: ended, or their process replaced, at nobody else's cost."""

import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType

import pytest

from pgjobs.exceptions import JobTimeout
from pgjobs.leases.states import Lease
from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.queue.outcomes import Raised, Succeeded
from pgjobs.worker import clock, deadlines
from pgjobs.worker.executor import Executor
from pgjobs.worker.holdings import Holding, Holdings
from tests.jobsapp.jobs import hold, ok
from tests.jobsapp.misbehaving import (
    overrun,
    overrun_async,
    overrun_blocking,
    overrun_deaf,
    overrun_in_c,
    wait_briefly,
)
from tests.support.waiting import wait_until
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import deeds, row, wait_ended, wait_for_deed


@pytest.mark.workers
def test_an_overrun_is_an_attempt_and_nothing_more(spawn: Spawn) -> None:
    workers = spawn(concurrency=1)
    [child] = workers.child_pids

    ended = wait_ended([overrun.enqueue(), overrun_async.enqueue(), ok.enqueue()])

    assert [job.status for job in ended.values()] == ["dead", "dead", "succeeded"]
    late = [job.errors[0] for job in ended.values() if job.errors]
    assert [(entry["kind"], entry["type"].rpartition(".")[2]) for entry in late] == [
        ("timeout", "JobTimeout"),
        ("timeout", "JobTimeout"),
    ]
    assert all("longer than its timeout of 0.3 s" in entry["message"] for entry in late)
    assert workers.child_pids == [child]


@pytest.mark.workers
@pytest.mark.parametrize("how", ["in C", "deaf", "blocking the loop"])
def test_a_stuck_handler_costs_its_process_and_no_neighbour(
    spawn: Spawn, gate: Callable[[str], Gate], how: str
) -> None:
    door, late_door, never = gate("door"), gate("late"), gate("never")
    workers = spawn(
        "--grace-seconds", "2", "--lease-seconds", "60", concurrency=3, settings={"STUCK_GRACE_SECONDS": 0.5}
    )
    [child] = workers.child_pids
    quick = hold.enqueue(key="quick", gate=str(door))
    slow = hold.enqueue(key="slow", gate=str(late_door))
    wait_for_deed("quick:start"), wait_for_deed("slow:start")
    stuck = {
        "in C": overrun_in_c.enqueue,
        "deaf": lambda: overrun_deaf.enqueue(gate=str(never)),
        "blocking the loop": lambda: overrun_blocking.enqueue(gate=str(never)),
    }[how]()

    dead = wait_ended([stuck])[stuck.pk]
    door.open()
    wait_until(lambda: len(deeds("slow:start")) == 2, 40, "the other process")
    late_door.open()
    ended = wait_ended([quick, slow, ok.enqueue()])

    assert (dead.status, dead.attempt_count, dead.crash_count) == ("dead", 1, 0)
    assert [entry["kind"] for entry in dead.errors] == ["timeout"]
    assert {(job.status, job.attempt_count, job.crash_count) for job in ended.values()} == {
        ("succeeded", 1, 0)
    }
    assert [deed.pid == child for deed in deeds("quick:end")] == [True], "within the grace"
    assert [deed.pid == child for deed in deeds("slow:end")] == [False], "handed back, and run by the next"
    assert wait_until(lambda: workers.child_pids != [child] and workers.child_pids, message="a fresh process")
    assert row(stuck.pk).status == "dead"


@pytest.mark.workers
def test_a_stuck_handler_alone_is_replaced_without_waiting_for_the_grace(spawn: Spawn) -> None:
    workers = spawn("--grace-seconds", "300", concurrency=1, settings={"STUCK_GRACE_SECONDS": 0.3})

    ended = wait_ended([overrun_in_c.enqueue(), ok.enqueue()], 30)

    assert [job.status for job in ended.values()] == ["dead", "succeeded"]
    assert len(workers.names) == 2


ROUNDS = 300


@pytest.mark.django_db(transaction=True)
def test_a_timeout_at_the_last_moment_hits_no_other_job() -> None:
    """The exception is raised from outside, while the handler returns: it must not land in what comes next."""
    ends: dict[int, Ended] = {}
    executor = Executor(
        using="default",
        holdings=Holdings(60),
        settled=lambda held, ended: ends.setdefault(held.lease.pk, ended),
        confirm=lambda held: True,
        stopping=threading.Event(),
    )
    dice = random.Random(3)
    previous = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for n in range(ROUNDS):
            pair = [holding(2 * n, wait_briefly.job_type), holding(2 * n + 1, ok.job_type)]
            slot = threading.Thread(
                target=lambda pair=pair: [executor.run(held) for held in pair], daemon=True
            )
            slot.start()
            while pair[0].thread_id is None and not pair[0].ended:
                pass
            aim = time.monotonic() + dice.uniform(0, 0.0015)
            while time.monotonic() < aim:
                pass
            pair[0].deadline = clock.now() - 1
            deadlines.enforce(pair, stuck_grace=60)
            slot.join(5)
            assert not slot.is_alive()
    finally:
        sys.setswitchinterval(previous)

    outcomes = {pk: type(ended.outcome) for pk, ended in ends.items()}
    assert len(outcomes) == 2 * ROUNDS
    assert {kind for pk, kind in outcomes.items() if pk % 2} == {Succeeded}
    assert {kind for pk, kind in outcomes.items() if pk % 2 == 0} <= {Succeeded, Raised}
    assert gets_past_a_traced_call()


@pytest.mark.parametrize("event", ["call", "return", "c_call", "c_return"])
def test_a_timeout_that_arrives_anywhere_near_the_end_leaves_nothing_bounded(event: str) -> None:
    """At each moment between the work's last line and what comes after: it is late, or it is done, and no more."""
    came_to = [_interrupted_at(event, moment) for moment in range(6)]

    assert set(came_to) <= {"done", "late"} and "done" in came_to


def _interrupted_at(event: str, moment: int) -> str:
    held = holding(1, ok.job_type)
    left = moment

    def profile(frame: FrameType, what: str, argument: object) -> None:
        nonlocal left
        if what != event or not over:
            return
        left -= 1
        if left == -1 and held.deadline is not None:
            held.deadline = clock.now() - 1
            watch = threading.Thread(target=deadlines.enforce, args=([held], 60))
            sys.setprofile(None)
            watch.start()
            patience = time.monotonic() + 0.2  # while the bound is being taken away the watch waits for that
            while not held.timed_out and time.monotonic() < patience:
                time.sleep(0)

    def work() -> str:
        over.append(True)
        return "done"

    over: list[bool] = []
    sys.setprofile(profile)
    try:
        came_to = deadlines.bounded(held, 60, work)
    except JobTimeout:
        came_to = "late"
    finally:
        sys.setprofile(None)
    assert (held.deadline, held.thread_id, held.timed_out) == (None, None, False)
    assert deadlines.bounded(held, 60, lambda: "next") == "next"
    return came_to


def gets_past_a_traced_call() -> bool:
    """False when Python still believes an exception to be on its way: up to 3.11 a traced call then never begins."""

    def traced() -> None:
        sys.settrace(lambda *_: None)
        uuid.uuid4()
        sys.settrace(None)

    thread = threading.Thread(target=traced, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


def holding(pk: int, job_type: str) -> Holding:
    job = ClaimedJob(
        lease=Lease(pk, uuid.uuid4(), "worker"),
        job_type=job_type,
        payload="{}",
        attempt=1,
        crash_count=0,
        max_attempts=5,
        idempotency_key=None,
        awaited=False,
        already_produced=False,
    )
    return Holding(job, clock.now() + 60)
