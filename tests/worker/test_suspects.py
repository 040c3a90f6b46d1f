"""Suspects: a process is started for those that it can claim, and no other."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db.models.functions import Now

from pgjobs.models import Job
from pgjobs.worker import supervisor
from pgjobs.worker.children import Child
from pgjobs.worker.ledger import Ledger, create
from pgjobs.worker.options import WorkerOptions
from tests.jobsapp.jobs import effect
from tests.jobsapp.misbehaving import kill_when_open
from tests.jobsapp.models import Effect
from tests.leases.sessions import Session, sessions, transaction_open
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import deeds, row, wait_ended, wait_for_deed


class Ended:
    """A process that is over."""

    pid, returncode = 0, 1

    def poll(self) -> int:
        return 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """The processes that a supervisor starts; they end at once and have begun nothing."""
    children: list[Child] = []

    def start(options: WorkerOptions, slot: str, news: int) -> Child:
        child: Any = Child(options, slot, Ended(), 0, create())  # type: ignore[arg-type]
        children.append(child)
        return child

    monkeypatch.setattr(supervisor, "start", start)
    return children


@pytest.fixture
def parent(transactional_db: None) -> Iterator[supervisor.Supervisor]:
    parent = supervisor.Supervisor(WorkerOptions(drain=True))
    yield parent
    parent._restore_signals({})


@pytest.fixture
def other(transactional_db: None) -> Iterator[Session]:
    with sessions("other") as [session]:
        yield session


def suspect(key: str) -> Job:
    job = effect.enqueue(key=key)
    Job.objects.filter(pk=job.pk).update(crash_count=1)
    return job


def lock(pk: int) -> Callable[[], object]:
    return lambda: list(Job.objects.select_for_update().filter(pk=pk))


def test_no_process_is_started_for_a_suspect_that_somebody_has_locked(
    parent: supervisor.Supervisor, started: list[Child], other: Session
) -> None:
    locked = suspect("locked")
    held = transaction_open(other, lock(locked.pk))

    parent._isolate_suspects()
    assert started == [] and not parent._finished(), "but a drain waits for it"

    suspect("free")
    parent._isolate_suspects()
    assert len(started) == 1

    held.finish()
    parent._isolate_suspects()
    assert len(started) == 2


def test_processes_that_begin_nothing_are_started_more_and_more_rarely(
    parent: supervisor.Supervisor, started: list[Child]
) -> None:
    suspect("cannot be loaded")
    waits = []
    for _ in range(6):
        parent._not_before = 0.0
        parent._isolate_suspects()
        parent._collect()
        waits.append(parent._not_before - supervisor.clock.now())
        parent._isolate_suspects()

    assert len(started) == 6, "one more at once after the first; none before its time after the others"
    assert waits[0] <= 0 and waits[-1] > 5

    parent._not_before = 0.0
    parent._isolate_suspects()
    Ledger(started[-1].ledger).begin("job", 1)
    parent._collect()
    assert parent._not_before <= supervisor.clock.now()


@pytest.mark.workers
def test_a_locked_suspect_runs_when_it_can_be_claimed(spawn: Spawn, other: Session) -> None:
    locked, free = suspect("locked"), suspect("free")
    held = transaction_open(other, lock(locked.pk))
    workers = spawn(concurrency=1)
    wait_ended([free])

    held.finish()

    wait_for_deed("locked")
    wait_ended([locked])
    assert (row(locked.pk).attempt_count, row(locked.pk).crash_count) == (1, 1)
    assert len([name for name in workers.names if ".suspect" in name]) <= 2


@pytest.mark.workers
def test_what_a_lost_machine_held_is_back_at_work_in_seconds(
    spawn: Spawn, gate: Callable[[str], Gate]
) -> None:
    """Nobody knows which of its rows had begun, so all are suspects: one after another, and never two in hand."""
    door = gate("door")
    door.open()
    rows = [effect.using(max_crashes=2 if n < 4 else 3).enqueue(key=f"row {n}") for n in range(60)]
    poison = kill_when_open.using(priority=99).enqueue(key="poison", gate=str(door))
    Job.objects.update(
        status="running",
        attempt_count=1,
        lease_owner="lost",
        lease_token=uuid.uuid4(),
        lease_expires_at=Now(),
        heartbeat_at=Now(),
    )

    workers = spawn(concurrency=5)
    ended = wait_ended([*rows, poison])

    assert {(ended[job.pk].status, ended[job.pk].crash_count) for job in rows} == {("succeeded", 1)}
    assert {ended[job.pk].attempt_count for job in rows} == {2}
    dead = ended[poison.pk]
    assert (dead.status, dead.attempt_count, dead.crash_count) == ("dead", 3, 3)
    ran = list(Effect.objects.order_by("pk").values_list("pid", "key"))
    processes = {pid: [key for each, key in ran if each == pid] for pid, _ in ran}
    assert len(processes) < 20 and not set(processes) & {workers.ready[0][1]}
    last_chances = {f"row {n}" for n in range(4)}
    assert not any(last_chances & set(keys[1:]) for keys in processes.values()), "these had a fresh process"
    assert deeds("poison")[-1].pid == [pid for pid, keys in processes.items() if keys[0] == "poison"][-1]
