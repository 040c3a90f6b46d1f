"""Small promises of the parent, the heartbeat and the executor, each at the place that keeps it."""

import logging
import math
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, InternalError, OperationalError, connections

from pgjobs import Backoff, Retry, Snooze, job, signals
from pgjobs.backoff import MAX_DELAY_SECONDS
from pgjobs.leases.states import Lease
from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.queue.outcomes import Failed, Raised, Snoozed
from pgjobs.queue.registry import registry
from pgjobs.worker import clock, supervisor
from pgjobs.worker.children import Child
from pgjobs.worker.executor import Executor
from pgjobs.worker.heartbeat import Heartbeat
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.process import WorkerProcess
from pgjobs.worker.registration import Vitals
from pgjobs.worker.supervisor import Supervisor
from tests.jobsapp.jobs import ok
from tests.leases.factories import running
from tests.support.own_database import QUEUE
from tests.support.waiting import wait_until
from tests.support.workers import Workers
from tests.worker.conftest import Spawn
from tests.worker.observation import row, wait_ended

OPTIONS = WorkerOptions(lease_seconds=30, heartbeat_seconds=10, grace_seconds=60, name="review")


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test declares is forgotten after it."""
    monkeypatch.setattr(registry, "_by_name", dict(registry._by_name))


def claimed(job_type: str, pk: int = 1) -> Holding:
    lease = Lease(pk, uuid.uuid4(), "review")
    return Holding(
        ClaimedJob(
            lease=lease,
            job_type=job_type,
            payload="{}",
            attempt=1,
            crash_count=0,
            max_attempts=5,
            idempotency_key=None,
            awaited=False,
            already_produced=False,
        ),
        clock.now() + 60,
    )


# The supervisor


@pytest.fixture
def parent() -> Iterator[Supervisor]:
    parent = Supervisor(OPTIONS)
    yield parent
    parent._restore_signals({})


@pytest.mark.workers
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_stop_that_comes_while_children_are_started_reaches_each_of_them(
    worker_env: Callable[[], dict[str, str]], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    for name, value in worker_env().items():
        monkeypatch.setenv(name, value)
    started: list[Child] = []
    start = supervisor.start

    def start_and_be_told(options: WorkerOptions, slot: str, news: int) -> Child:
        started.append(start(options, slot, news))
        if slot == "2":
            os.kill(os.getpid(), number)  # the handler runs before the supervisor has noted this child
        return started[-1]

    monkeypatch.setattr(supervisor, "start", start_and_be_told)

    assert Supervisor(WorkerOptions(processes=4, grace_seconds=60)).run() == 0

    assert [child.slot for child in started] == ["1", "2"]
    assert all(child.has_ended() and not child.killed for child in started)


def test_a_stop_does_not_meddle_with_what_is_being_walked_over(parent: Supervisor) -> None:
    """It may come between any two instructions, so it only counts."""
    parent._restarts["1"] = 0.0

    parent._on_stop(signal.SIGTERM, None)
    parent._on_stop(signal.SIGTERM, None)

    assert (parent._restarts, parent._stop_requests) == ({"1": 0.0}, 2)


@pytest.mark.workers
def test_a_read_only_window_ends_neither_the_parent_nor_a_child_that_registers(
    spawn: Spawn, transactional_db: None
) -> None:
    database = connections[QUEUE].settings_dict["NAME"]

    def read_only(state: str) -> None:
        with connections[QUEUE].cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = {state}')

    with_refusal = lambda workers, text: lambda: text in workers.output()  # noqa: E731
    read_only("on")
    try:
        workers: Workers = spawn(wait=False)
        wait_until(with_refusal(workers, "cannot register yet"), 60, lambda: workers.output())
        assert workers.process.poll() is None and "died" not in workers.output()
        with connections[QUEUE].cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
        read_only("off")
        workers.wait_ready(1)
        first = workers.ready[0][1]
        read_only("on")
        workers.signal(signal.SIGKILL, first)
        wait_until(with_refusal(workers, "cannot give back"), 60, lambda: workers.output())
    finally:
        with connections[QUEUE].cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
        read_only("off")
    workers.wait_ready(2)
    assert {done.status for done in wait_ended([ok.enqueue()]).values()} == {"succeeded"}


def test_what_keeps_failing_is_logged_at_powers_of_two_whatever_else_works(
    parent: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:

    def away() -> None:
        raise OperationalError("away")

    with caplog.at_level(logging.WARNING, logger="pgjobs.supervisor"):
        for _ in range(8):
            parent._contained("give back", lambda: None)
            parent._contained("look for suspects", away)

    assert [record.getMessage().count("away") > 0 for record in caplog.records] == [True] * 4  # 1, 2, 4, 8


@pytest.mark.parametrize("error", [InternalError("read only"), DatabaseError("?"), OperationalError("gone")])
def test_no_error_of_the_database_ends_the_supervisor(parent: Supervisor, error: Exception) -> None:
    def refused() -> None:
        raise error

    parent._contained("give back", refused)

    assert parent._failures == {"give back": 1}


@pytest.mark.django_db
def test_workers_without_tables_are_told_to_migrate() -> None:
    with connections[QUEUE].cursor() as cursor:
        cursor.execute("CREATE SCHEMA aside")
        cursor.execute("ALTER TABLE pgjobs_worker SET SCHEMA aside")

    with pytest.raises(CommandError, match=r"pgjobs_worker.*manage\.py migrate"):
        call_command("runworkers", skip_checks=True)


@pytest.mark.workers
def test_workers_start_although_the_database_is_away(spawn: Spawn, transactional_db: None) -> None:
    workers = spawn(wait=False, env={"DATABASE_URL": "postgresql://nobody@localhost:1/nothing"})

    wait_until(lambda: "cannot register yet" in workers.output(), 60, lambda: workers.output())
    workers.signal(signal.SIGTERM)

    assert workers.wait(30) == 0, workers.output()


# The heartbeat


def beat(holdings: Holdings) -> Heartbeat:
    return Heartbeat(QUEUE, OPTIONS, holdings, Vitals, lambda holding: None)


def test_the_heartbeat_tries_again_within_a_second() -> None:
    def away() -> None:
        raise OperationalError("away")

    heartbeat = beat(Holdings(30))

    assert max(heartbeat._contained(away) for _ in range(50)) <= 1.0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("outage", [False, True])
def test_progress_told_while_it_is_written_or_cannot_be_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, outage: bool
) -> None:
    from pgjobs.worker import heartbeat as module

    told = running()
    holdings = Holdings(30)
    [holding] = holdings.add([told], clock.now())
    heartbeat = beat(holdings)
    write = module.write_progress
    holding.progress = '{"done": 1}'

    def while_written(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(module, "write_progress", write)
        if outage:
            raise OperationalError("away")
        write(*args, **kwargs)
        holding.progress = '{"done": 2}'

    monkeypatch.setattr(module, "write_progress", while_written)
    heartbeat._contained(heartbeat._write_progress)
    heartbeat._write_progress()

    assert row(told.lease.pk).progress == ({"done": 1} if outage else {"done": 2})


@pytest.mark.django_db
def test_progress_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from pgjobs.worker import heartbeat as module

    holdings = Holdings(30)
    [holding] = holdings.add([running()], clock.now())
    heartbeat = beat(holdings)
    rounds: list[Any] = []
    monkeypatch.setattr(module, "write_progress", lambda told, **_: rounds.append(told))
    holding.progress = '{"done": 1}'

    for _ in range(3):
        heartbeat._write_progress()

    assert len(rounds) == 1


# The executor


@pytest.fixture
def ended() -> list[Ended]:
    return []


@pytest.fixture
def executor(ended: list[Ended]) -> Executor:
    return Executor(
        using=QUEUE,
        holdings=Holdings(60),
        settled=lambda holding, end: ended.append(end),
        confirm=lambda holding: True,
        stopping=threading.Event(),
    )


def raising(error: BaseException, **options: Any) -> str:
    @job(name=f"review.{uuid.uuid4().hex}", **options)
    def work() -> None:
        raise error

    return work.job_type


@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize("delay", [-0.1, timedelta(seconds=-5), -(10**400), 0], ids=range(4))
def test_a_moment_in_the_past_is_now(executor: Executor, ended: list[Ended], delay: Any) -> None:
    """As it comes from subtracting two times."""
    for error in (Snooze(delay), Retry("later", after=delay)):
        executor.run(claimed(raising(error)))
    executor.run(claimed(raising(ValueError("x"), retry=lambda attempt, error: delay)))

    outcomes = [end.outcome for end in ended]
    assert [type(outcome) for outcome in outcomes] == [Snoozed, Raised, Raised]
    assert [outcome.delay for outcome in outcomes if isinstance(outcome, Snoozed | Raised)] == [0.0] * 3


@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize(
    "delay", [math.nan, math.inf, MAX_DELAY_SECONDS + 1, "5", True, None, 10**400], ids=range(7)
)
def test_a_delay_that_makes_no_sense_is_still_an_error(
    executor: Executor, ended: list[Ended], delay: Any
) -> None:
    executor.run(claimed(raising(Snooze(delay))))

    [end] = ended
    assert isinstance(end.outcome, Failed) and "delay=" in end.outcome.problem.message


@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize(
    ("retry", "delay"), [(Backoff(base=7, cap=7, jitter=0), 7.0), (lambda attempt, error: 3, 3.0)]
)
def test_a_stuck_handler_comes_back_by_the_policy_of_its_type(retry: Any, delay: float) -> None:
    process = WorkerProcess(OPTIONS)
    stuck = claimed(raising(ValueError("never"), retry=retry, timeout=1))

    process._replace_stuck(stuck)

    [(holding, end)] = process._settler._requests
    assert holding is stuck and isinstance(end.outcome, Raised)
    assert (end.outcome.delay, end.outcome.problem.kind) == (delay, "timeout")


@pytest.mark.usefixtures("scratch")
def test_a_policy_that_says_stop_ends_what_is_stuck_and_what_is_late(
    executor: Executor, ended: list[Ended]
) -> None:
    from pgjobs.exceptions import JobTimeout

    process = WorkerProcess(OPTIONS)
    stop = lambda attempt, error: None  # noqa: E731

    process._replace_stuck(claimed(raising(ValueError("never"), retry=stop, timeout=1)))
    executor.run(claimed(raising(JobTimeout(1, 1), retry=stop)))

    [(_, stuck)] = process._settler._requests
    assert [type(end.outcome) for end in (stuck, *ended)] == [Failed, Failed]
    assert {end.outcome.problem.kind for end in (stuck, *ended) if isinstance(end.outcome, Failed)} == {
        "timeout"
    }


# Signals


@pytest.fixture
def broken_receiver() -> Iterator[None]:
    def broken(**kwargs: Any) -> None:
        raise RuntimeError("a receiver of the project's")

    signals.job_started.connect(broken, weak=False)
    yield
    signals.job_started.disconnect(broken)


@pytest.mark.usefixtures("broken_receiver")
def test_a_receiver_that_raises_harms_nothing_and_is_logged(
    executor: Executor, ended: list[Ended], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="django.dispatch"):
        executor.run(claimed(ok.job_type))

    assert len(ended) == 1
    assert any("a receiver of the project's" in (r.exc_text or r.getMessage()) for r in caplog.records)
