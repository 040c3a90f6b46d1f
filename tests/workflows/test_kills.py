"""SIGKILL at every stage: no recorded step runs again, and everything ends."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from pgjobs.conf import Settings
from pgjobs.models import Execution, StepOutput, Wait
from tests.jobsapp import workflows as flows
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.support.workers import Workers
from tests.worker.conftest import Spawn
from tests.workflows.held import held
from tests.workflows.rows import status

pytestmark = pytest.mark.workers

EXECUTIONS, STEPS, KILLS, OWN_KILLS = 200, 10, 8, 9
HURRY: dict[str, Any] = {
    "CRASH_DELAY_SECONDS": 0.05,
    "CRASH_DELAY_CAP_SECONDS": 0.1,
    "REAP_SECONDS": 0.3,
    "POLL_SECONDS": 0.2,
    "IDLE_POLL_SECONDS": 0.5,  # sleepers that a dead or isolated worker has parked are looked for so often
}


def succeeded() -> int:
    return Execution.objects.filter(status="succeeded").count()


def repeated_after_their_record() -> list[tuple[Any, ...]]:
    """Deeds of steps that were done when the step was recorded already. There may be none."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT effect.key, effect.attempt, effect.created_at - step.recorded_at"
            " FROM jobsapp_effect AS effect JOIN pgjobs_stepoutput AS step"
            " ON effect.key = step.execution_id || ':' || step.step_id WHERE effect.created_at > step.recorded_at"
        )
        return cursor.fetchall()


@pytest.mark.campaign
@pytest.mark.timeout(400)  # on a busy machine; a minute or less otherwise
def test_two_hundred_executions_of_ten_steps(spawn: Spawn, tmp_path: Path) -> None:
    """Workers die from outside at random moments, by their own step at chosen ones, and once with their supervisor."""
    dice = random.Random(3)
    stages = ["before", "inside", "after"]
    points = [{str(dice.randrange(STEPS)): stages[n % 3]} if n < OWN_KILLS else {} for n in range(EXECUTIONS)]
    dice.shuffle(points)
    started = [flows.ten_steps.start(points=where, folder=str(tmp_path)) for where in points]
    workers = spawn(processes=4, concurrency=2, settings=HURRY, wait=False)

    for kill in range(1, KILLS + 1):
        # Spread over the run: the next kill comes when its share of the steps is recorded.
        due = kill * EXECUTIONS * STEPS // (KILLS + 2)
        wait_until(lambda due=due: StepOutput.objects.count() >= due, 90, f"step {due}")
        if kill == KILLS // 2:
            workers.kill()
            workers = spawn(processes=4, concurrency=2, settings=HURRY, wait=False)
            continue
        victim = dice.choice(wait_until(lambda workers=workers: workers.child_pids, 60, "a worker to kill"))
        os.kill(victim, signal.SIGKILL)
    wait_until(lambda: succeeded() == EXECUTIONS, 90, lambda: f"the ends; {succeeded()} of {EXECUTIONS}")

    assert Execution.objects.exclude(output=list(range(STEPS))).count() == 0
    assert StepOutput.objects.count() == EXECUTIONS * STEPS
    assert repeated_after_their_record() == []
    done = Counter(Effect.objects.values_list("key", flat=True))
    assert set(done) == {f"{one.pk}:work[{n}]" for one in started for n in range(STEPS)}, (
        "nothing was left out"
    )
    again = sum(done.values()) - len(done)
    assert again <= 2 * (KILLS + 3) + OWN_KILLS, (
        "only what a death caught between effect and record is done again"
    )
    assert Wait.objects.filter(kind="sleep").count() == EXECUTIONS, "no wait was opened twice"
    assert not Wait.objects.filter(resolved_at__lt=F("wake_at")).exists()
    assert Execution.objects.exclude(errors=[]).count() >= OWN_KILLS, "the deaths are told of"


# What is held up while the worker dies, and how often the steps "first" and "last" run in all when it does not commit.
STAGES: dict[str, tuple[str, str, str, int, int]] = {
    "claiming": ("pgjobs_execution", "UPDATE", "NEW.status = 'running'", 1, 1),
    "recording a step": ("pgjobs_stepoutput", "INSERT", "NEW.step_id = 'first#1'", 2, 1),
    "opening a wait": ("pgjobs_wait", "INSERT", "true", 1, 1),
    "parking": ("pgjobs_execution", "UPDATE", "NEW.status = 'waiting'", 1, 1),
    "resolving a wait": ("pgjobs_wait", "UPDATE OF resolved_at", "true", 1, 1),
    "waking": ("pgjobs_execution", "UPDATE", "OLD.status = 'waiting' AND NEW.status = 'enqueued'", 1, 1),
    "recording a block": ("pgjobs_stepoutput", "INSERT", "NEW.step_id = 'block#1'", 1, 1),
    "recording the last step": ("pgjobs_stepoutput", "INSERT", "NEW.step_id = 'last#1'", 1, 2),
    "ending": ("pgjobs_execution", "UPDATE", "NEW.status = 'succeeded'", 1, 1),
}
TWICE = ("claiming", "recording a step", "parking", "waking", "recording a block", "ending")
"""Stages where a lost answer differs from a lost commit."""

DEATHS = [(stage, False) for stage in STAGES] + [(stage, True) for stage in TWICE]


# The supervisor gives back what dead workers held; no lease may lapse meanwhile because the machine is busy.
UNHURRIED = ("--lease-seconds", "30", "--heartbeat-seconds", "1", "--poll-seconds", "0.2")


def child(workers: Workers) -> int:
    [pid] = workers.child_pids
    return pid


@pytest.mark.parametrize(
    ("stage", "committed"), DEATHS, ids=[f"{s}, {'unanswered' if c else 'uncommitted'}" for s, c in DEATHS]
)
def test_killed_while(spawn: Spawn, stage: str, committed: bool) -> None:
    """Unanswered: the worker is stopped while its commit is held up, which then goes on; it never learns so."""
    table, event, when, first, last = STAGES[stage]
    workers = spawn(concurrency=1, settings=HURRY, clock=UNHURRIED)
    with held(table, event, when) as hold:
        started = flows.staged.start()
        session = hold.wait_reached()
        victim = child(workers)
        os.kill(victim, signal.SIGSTOP)
        if committed:
            hold.let_go()
        else:
            end_session(session)
        os.kill(victim, signal.SIGKILL)
    wait_until(lambda: status(started) == "succeeded", 40, lambda: f"the end: {row_of(started)}")

    deeds = Counter(key.partition(":")[2] for key in Effect.objects.values_list("key", flat=True))
    expected = {"first": 1 if committed else first, "block": 1, "last": 1 if committed else last}
    assert deeds == expected, row_of(started)
    assert started.steps.count() == 3 and started.waits.count() == 1
    assert row_of(started)["output"] == "done"


def end_session(pid: int) -> None:
    """As the server does some time after its client has died, only sooner."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


def row_of(started: Execution) -> dict[str, Any]:
    found = Execution.objects.filter(pk=started.pk)
    return dict(
        found.values("status", "output", "crash_count", "attempt_count", "last_error", "errors").get()
    )


@pytest.mark.parametrize(
    "seen",
    [True, pytest.param(False, marks=pytest.mark.campaign)],
    ids=["its supervisor sees it", "the host is lost"],
)
def test_an_execution_goes_on_soon_after_a_death(spawn: Spawn, tmp_path: Path, seen: bool) -> None:
    """Reaping, the delay after a death and the look for suspects are those of the defaults."""
    names = ("REAP_SECONDS", "CRASH_DELAY_SECONDS", "CRASH_DELAY_CAP_SECONDS")
    defaults = {name: getattr(Settings(), name.lower()) for name in names}
    lease = 60.0 if seen else 3.0
    clock = ("--lease-seconds", str(lease), "--heartbeat-seconds", str(min(lease / 3, 10.0)))
    started = flows.six_steps.start(gate=str(tmp_path / "gate"))
    begun = Effect.objects.filter(key=f"{started.pk}:3:start")
    workers = spawn(concurrency=1, settings=defaults, clock=clock)
    wait_until(begun.exists, 30, "step 3")
    if not seen:
        spawn(concurrency=1, settings=defaults, clock=clock)

    killed = time.monotonic()
    os.kill(child(workers), signal.SIGKILL) if seen else workers.kill()
    wait_until(lambda: begun.count() == 2, lease + 20, "step 3 again")

    assert time.monotonic() - killed < (10 if seen else lease + 5)
    (tmp_path / "gate").touch()
    wait_until(lambda: status(started) == "succeeded", 30, "the end")
    assert Effect.objects.filter(key__endswith=":1:start").count() == 1, "recorded steps did not run again"


def test_a_stopped_worker_runs_no_part_of_what_another_has_finished(spawn: Spawn, tmp_path: Path) -> None:
    """SIGSTOP inside step 3 of 6, past the lease; another worker ends it; SIGCONT."""
    gate = tmp_path / "gate"
    started = flows.six_steps.start(gate=str(gate))
    zombie = spawn(concurrency=1)
    wait_until(lambda: Effect.objects.filter(key=f"{started.pk}:3:start").exists(), 30, "step 3")
    zombie.signal(signal.SIGSTOP)
    stopped = child(zombie)
    zombie.signal(signal.SIGSTOP, stopped)
    gate.touch()
    other = spawn(concurrency=1)
    wait_until(lambda: status(started) == "succeeded", 30, "the end by another")
    ended = list(Execution.objects.values())

    zombie.signal(signal.SIGCONT, stopped)
    zombie.signal(signal.SIGCONT)
    # It finishes its own step 3, is told so by its record, and then takes other work.
    third = f"{started.pk}:3:end"
    wait_until(lambda: Effect.objects.filter(key=third, pid=stopped).exists(), 30, "the zombie's own step")
    other.signal(signal.SIGTERM)
    assert other.wait() == 0
    fresh = flows.add_up.start(n=2)
    wait_until(lambda: status(fresh) == "succeeded", 30, "the zombie's next work")

    mine = list(Effect.objects.filter(pid=stopped).values_list("key", flat=True))
    assert mine == [
        f"{started.pk}:{what}" for what in ("1:start", "1:end", "2:start", "2:end", "3:start", "3:end")
    ]
    theirs = list(Effect.objects.exclude(pid=stopped).values_list("key", flat=True))
    assert theirs == [f"{started.pk}:{n}:{what}" for n in (3, 4, 5, 6) for what in ("start", "end")]
    assert list(Execution.objects.filter(pk=started.pk).values()) == ended
    started.refresh_from_db()
    assert started.output == 21 and started.steps.count() == 6
