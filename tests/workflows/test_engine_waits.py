"""Waits as the engine opens them: signals before, during and after, sleeps that end once, and nobody woken in vain."""

import datetime as dt
from typing import Any

import pytest

from pgjobs.exceptions import WaitTimeout
from pgjobs.models import Execution, Message, Wait
from pgjobs.workflows.messages import send
from pgjobs.workflows.sweep import sweep_due
from tests.jobsapp import workflows as flows
from tests.jobsapp.models import Effect
from tests.leases.sessions import sessions, transaction_open
from tests.support.waiting import wait_until
from tests.worker.conftest import Spawn
from tests.worker.observation import database_says
from tests.workflows.carrier import Carrier, make_due, waits
from tests.workflows.held import held, sessions_waiting_for
from tests.workflows.rows import status


def listen(ctx: Any) -> Any:
    return ctx.wait_signal("go")


def test_a_signal_before_and_after_the_wait(carrier: Carrier) -> None:
    flow = carrier.flow(listen)
    early = flow.start()
    early.signal("go", "early")
    assert carrier.run(early).output == "early" and early.attempt_count == 1, "it never parked"

    late = carrier.run(flow.start())
    late.signal("go", "late")
    assert carrier.run(late).output == "late" and late.attempt_count == 2


def test_a_signal_that_arrives_while_parking_after_the_look_into_the_mailbox(carrier: Carrier) -> None:
    """The park holds the execution's row, so the signal waits for it, and then finds somebody waiting."""
    started = carrier.flow(listen).start()
    holding = carrier.claim()
    assert holding is not None
    with sessions("sender") as [sender], held("pgjobs_execution", "UPDATE", "NEW.status = 'waiting'") as hold:
        turn = carrier.start(holding)
        hold.wait_reached()
        sending = sender.start(send, started.pk, "go", "during")
        sender.wait_blocked()
        assert turn.going and not sending.done()
        hold.let_go()
        sending.result(30)
        turn.finish()
    assert status(started) == "enqueued"
    carrier.run(started)
    assert (started.status, started.output, started.attempt_count) == ("succeeded", "during", 2)


def test_a_signal_that_arrives_while_parking_before_the_look_into_the_mailbox(carrier: Carrier) -> None:
    """The signal holds the execution's row, so the park gives way as often as need be, and then finds the message."""
    started = carrier.flow(listen).start()
    holding = carrier.claim()
    assert holding is not None
    with sessions("sender") as [sender]:
        sending = transaction_open(sender, lambda: send(started.pk, "go", "during"))
        turn = carrier.start(holding)
        wait_until(lambda: sessions_waiting_for(sender.pid), 30, "the park to wait for the sender")
        assert turn.going
        sending.finish()
        turn.finish()
    started.refresh_from_db()
    assert (started.status, started.output, started.attempt_count) == ("succeeded", "during", 1)


def test_two_senders_at_once_to_two_waits_of_one_name(carrier: Carrier) -> None:
    def body(ctx: Any) -> list[Any]:
        return [
            ctx.wait_signal("go"),
            ctx.wait_signal("go"),
            ctx.wait_signal("other", timeout=0, default=None),
        ]

    started = carrier.run(carrier.flow(body).start())
    with sessions("one", "two") as [one, two]:
        first = transaction_open(one, lambda: send(started.pk, "go", 1))
        second = two.start(send, started.pk, "go", 2)
        two.wait_blocked()
        first.finish()
        second.result(30)
    carrier.run(started)
    assert sweep_due(using="default"), "the third wait has no time"

    assert carrier.run(started).output == [1, 2, None]
    consumed = Message.objects.order_by("id").values_list("payload", "consumed_by__step_id")
    assert list(consumed) == [(1, "go#1"), (2, "go#2")]


def test_each_signal_is_taken_once_and_in_order(carrier: Carrier) -> None:
    def body(ctx: Any) -> list[Any]:
        got = []
        while (payload := ctx.wait_signal("go")) is not None:
            got.append(payload)
            if payload % 2:
                ctx.sleep("nap", 5, key=payload)
        return got

    started = carrier.flow(body).start()
    for n in range(1, 4):
        started.signal("go", n)
    carrier.run(started)
    started.signal("go", 4)
    carrier.wake(started)
    started.signal("go", None)
    carrier.wake(started)

    assert started.output == [1, 2, 3, 4] and carrier.replay(started).output == [1, 2, 3, 4]
    assert not Message.objects.filter(consumed_by__isnull=True).exists()


def test_a_wait_that_times_out_leaves_later_signals_to_the_next(carrier: Carrier) -> None:
    def body(ctx: Any) -> list[Any]:
        got: list[Any] = []
        try:
            got.append(ctx.wait_signal("go", timeout=5))
        except WaitTimeout as error:
            assert isinstance(error, TimeoutError)
            got.append(error.step_id)
        got.append(ctx.wait_signal("go", timeout=5, default="nobody came"))
        got.append(ctx.wait_signal("go"))
        return got

    started = carrier.run(carrier.flow(body).start())
    carrier.wake(started)
    carrier.wake(started)
    started.signal("go", "late")

    assert carrier.run(started).output == ["go#1", "nobody came", "late"]
    assert carrier.replay(started).output == ["go#1", "nobody came", "late"]


@pytest.mark.parametrize("first", ["signal", "timeout"])
def test_a_signal_and_the_end_of_its_time_meet(carrier: Carrier, first: str) -> None:
    """Compare-and-set: one of them has the wait, the other leaves it, and no message is lost."""

    def body(ctx: Any) -> list[Any]:
        return [
            ctx.wait_signal("go", timeout=5, default="timeout"),
            ctx.wait_signal("go", timeout=5, default="none"),
        ]

    started = carrier.run(carrier.flow(body).start())
    make_due(started)
    with sessions("one", "two") as [one, two]:
        if first == "signal":
            sending = transaction_open(one, lambda: send(started.pk, "go", "signal"))
            assert two.run(sweep_due, using="default") == 0, "what is locked is left for the next sweep"
            sending.finish()
        else:
            sweeping = transaction_open(one, lambda: sweep_due(using="default"))
            sender = two.start(send, started.pk, "go", "signal")
            two.wait_blocked()
            sweeping.finish()
            sender.result(30)
    carrier.run(started)
    if started.status == "waiting":
        carrier.wake(started)

    assert started.output == (["signal", "none"] if first == "signal" else ["timeout", "signal"])


def test_the_end_of_a_sleep_is_computed_once(carrier: Carrier) -> None:
    started = carrier.run(carrier.flow(lambda ctx: ctx.sleep("nap", 3600)).start())
    opened = Wait.objects.get()
    assert opened.wake_at is not None
    assert (
        dt.timedelta(0)
        <= opened.wake_at - opened.created_at - dt.timedelta(hours=1)
        < dt.timedelta(seconds=1)
    )
    for _ in range(3):
        Execution.objects.filter(pk=started.pk).update(status="enqueued")
        assert carrier.run(started).status == "waiting"

    again = Wait.objects.get()
    assert (again.pk, again.wake_at, again.resolved_at) == (opened.pk, opened.wake_at, None)
    assert started.attempt_count == 4


def test_a_sleep_never_ends_early(carrier: Carrier) -> None:
    started = carrier.run(carrier.flow(lambda ctx: ctx.sleep("nap", 3600)).start())

    assert sweep_due(using="default") == 0 and status(started) == "waiting"
    assert carrier.wake(started).status == "succeeded"


def test_sleep_until(carrier: Carrier) -> None:
    past, future = dt.datetime(1999, 1, 1, tzinfo=dt.UTC), dt.datetime(2100, 1, 1, tzinfo=dt.UTC)

    def body(ctx: Any) -> str:
        ctx.sleep_until("past", past)
        ctx.sleep_until("future", future)
        return "2100"

    started = carrier.run(carrier.flow(body).start())
    assert carrier.parked == [0.0], "the sweeper is told to look at once"
    assert sweep_due(using="default") and carrier.run(started).status == "waiting"
    assert waits(started) == [("past#1", True), ("future#1", False)]
    assert started.waits.get(step_id="future#1").wake_at == future
    assert carrier.wake(started).output == "2100"


def test_a_woken_execution_of_a_worker_that_never_came_back_is_not_lost(carrier: Carrier) -> None:
    """Waking is idempotent and wakes nobody who does not wait."""
    started = carrier.run(carrier.flow(listen).start())
    started.signal("go", 1)
    started.signal("go", 2)
    assert status(started) == "enqueued"
    holding = carrier.claim()
    started.signal("go", 3)
    assert holding is not None and status(started) == "running"
    carrier.start(holding).finish()
    started.refresh_from_db()

    assert started.output == 1
    assert Message.objects.filter(consumed_by__isnull=True).count() == 2


@pytest.mark.workers
def test_a_sleeper_that_is_due_while_nobody_runs(spawn: Spawn) -> None:
    started = flows.sleeper.start(seconds=0.5)
    workers = spawn("--no-reaper")
    wait_until(lambda: status(started) == "waiting", 30, "the sleep")
    workers.kill()
    wait_until(
        lambda: database_says("bool_and(wake_at < clock_timestamp()) FROM pgjobs_wait"), 10, "the due time"
    )
    assert status(started) == "waiting"

    spawn()

    wait_until(lambda: status(started) == "succeeded", 30, "the end")
    deeds = list(Effect.objects.values_list("key", flat=True))
    assert deeds == [f"{started.pk}:before", f"{started.pk}:after"]


@pytest.mark.workers
def test_workers_wake_sleepers_at_their_time_and_no_earlier(spawn: Spawn) -> None:
    """With slow polling only what the parking process itself knows can wake in time."""
    spawn("--poll-seconds", "30", settings={"IDLE_POLL_SECONDS": 30})
    started = [flows.sleeper.start(seconds=1), flows.until.start(seconds=1), flows.until.start(seconds=-5)]
    retried = flows.retries_later.start()

    wait_until(lambda: all(status(one) == "succeeded" for one in [*started, retried]), 15, "the ends")
    for wait in Wait.objects.select_related("execution"):
        assert wait.wake_at is not None and wait.resolved_at is not None
        assert wait.resolved_at >= wait.wake_at
        late = wait.resolved_at - max(wait.wake_at, wait.created_at)
        assert late < dt.timedelta(seconds=3), f"{wait} woke {late} late"
    retried.refresh_from_db()
    assert retried.output == 2


@pytest.mark.workers
def test_two_waits_of_one_name_with_real_workers(spawn: Spawn) -> None:
    started = [flows.two_waits.start() for _ in range(20)]
    spawn(processes=2, concurrency=3)
    for one in started:
        one.signal("go", 1)
    for one in started:
        one.signal("go", 2)

    wait_until(lambda: all(status(one) == "succeeded" for one in started), 30, "the ends")
    outputs = {tuple(output) for output in Execution.objects.values_list("output", flat=True)}
    assert outputs == {(1, 2)}


def test_four_eyes_without_a_starter_are_warned_of_once(
    carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    flow = carrier.flow(lambda ctx: ctx.approval("ok?", four_eyes=True))
    started = carrier.run(flow.start())
    assert caplog.text.count("nobody is recorded as its starter") == 1 and "ok?#1" in caplog.text
    carrier.run(flow.start(actor=started))
    Execution.objects.filter(pk=started.pk).update(status="enqueued")
    carrier.run(started)
    assert caplog.text.count("nobody is recorded as its starter") == 1
