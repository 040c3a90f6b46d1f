"""Steps: attempts, delays, timeouts, and failures that a replay sees as the first run did."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from pgjobs import Backoff, Fail, Retry, Snooze
from pgjobs.exceptions import DurableCallRefused, StepFailed
from pgjobs.models import StepOutput
from pgjobs.workflows.control import pause, resume, retry
from tests.jobsapp.models import Effect
from tests.workflows.carrier import Carrier, recorded, waits


class Work:
    """A step that fails until its `succeed_at`-th run."""

    def __init__(
        self, succeed_at: int = 10**6, error: Callable[[], Exception] = lambda: ValueError("no")
    ) -> None:
        self.runs = 0
        self._succeed_at = succeed_at
        self._error = error

    def __call__(self) -> int:
        self.runs += 1
        if self.runs < self._succeed_at:
            raise self._error()
        return self.runs


def test_short_delays_are_waited_for_in_the_thread(carrier: Carrier) -> None:
    work = Work(succeed_at=3)

    def body(ctx: Any) -> Any:
        return ctx.step(work, name="work", retry=Backoff(base=0.01, attempts=3))

    execution = carrier.run(carrier.flow(body).start())

    assert (execution.status, execution.output, execution.attempt_count, waits(execution)) == (
        "succeeded",
        3,
        1,
        [],
    )
    assert StepOutput.objects.get().attempts == 3


def test_a_snooze_is_refused_with_the_way_out(carrier: Carrier) -> None:
    work = Work(error=lambda: Snooze(5))
    seen: list[StepFailed] = []

    def body(ctx: Any) -> None:
        try:
            ctx.step(work, name="work", retry=Backoff(base=0.01, attempts=3))
        except StepFailed as error:
            seen.append(error)
        ctx.step(int, name="after")

    execution = carrier.run(carrier.flow(body).start())
    assert (execution.status, work.runs, recorded(execution)) == ("succeeded", 1, ["work#1", "after#1"])
    assert seen[0].error_type == "DurableCallRefused" and "Retry(after=...)" in seen[0].message


def test_long_delays_are_rows(carrier: Carrier) -> None:
    work = Work(succeed_at=3)

    def body(ctx: Any) -> Any:
        return ctx.step(work, name="work", retry=Backoff(base=60, jitter=0, attempts=3))

    execution = carrier.run(carrier.flow(body).start())
    assert (execution.status, execution.lease_token, work.runs) == ("waiting", None, 1)
    opened = execution.waits.get()
    assert opened.wake_at is not None and 59 < (opened.wake_at - opened.created_at).total_seconds() < 61

    assert carrier.wake(execution).status == "waiting"
    assert carrier.wake(execution).output == 3
    assert waits(execution) == [("work#1~retry1", True), ("work#1~retry2", True)]
    assert [wait.ordinal for wait in execution.waits.all()] == [0, 0]
    assert StepOutput.objects.get().attempts == 3


def test_attempts_are_counted_through_short_and_long_delays(carrier: Carrier) -> None:
    """Two delays in the thread (0.3 s, 0.6 s), then one in the row (1.2 s), then the last attempt."""
    work = Work()

    def body(ctx: Any) -> None:
        ctx.step(work, name="work", retry=Backoff(base=0.3, jitter=0, attempts=4))

    execution = carrier.run(carrier.flow(body).start())
    assert (work.runs, waits(execution)) == (3, [("work#1~retry3", False)])

    assert carrier.wake(execution).status == "failed"
    assert work.runs == 4 and "after 4 attempts" in execution.last_error


def test_a_resumed_execution_waits_for_the_rest_of_its_delay(carrier: Carrier) -> None:
    work = Work(succeed_at=2)

    def body(ctx: Any) -> Any:
        return ctx.step(work, name="work", retry=Backoff(base=60, attempts=2))

    execution = carrier.run(carrier.flow(body).start())
    assert pause([execution.pk], actor="test")[0].done and resume([execution.pk], actor="test")[0].done

    assert carrier.run(execution).status == "waiting"
    assert (work.runs, waits(execution)) == (1, [("work#1~retry1", False)])
    assert carrier.wake(execution).output == 2


def test_fail_is_not_tried_again(carrier: Carrier) -> None:
    work = Work(error=lambda: Fail("the card is stolen"))

    def body(ctx: Any) -> str:
        try:
            ctx.step(work, name="work", retry=Backoff(base=0, attempts=5))
        except StepFailed as error:
            return f"{error.step_id} {error.error_type} {error.message} {error.attempts}"
        return "worked"

    execution = carrier.run(carrier.flow(body).start())

    assert (execution.output, work.runs) == ("work#1 Fail the card is stolen 1", 1)


def test_retry_says_when(carrier: Carrier) -> None:
    work = Work(succeed_at=2, error=lambda: Retry("busy", after=timedelta(minutes=5)))

    def body(ctx: Any) -> Any:
        return ctx.step(work, name="work", retry=Backoff(base=0, attempts=2))

    execution = carrier.run(carrier.flow(body).start())

    opened = execution.waits.get()
    assert opened.wake_at is not None and 299 < (opened.wake_at - opened.created_at).total_seconds() < 301
    assert carrier.wake(execution).output == 2


@pytest.mark.parametrize("after", [-1, float("nan"), 1e12, True, "soon"])
def test_retry_with_a_senseless_delay_fails_the_step(carrier: Carrier, after: Any) -> None:
    work = Work(error=lambda: Retry("busy", after=after))

    def body(ctx: Any) -> None:
        ctx.step(work, name="work", retry=Backoff(base=0, attempts=3))

    execution = carrier.run(carrier.flow(body).start())

    assert execution.status == "failed" and work.runs == 1
    assert "work#1" in execution.last_error and f"Retry(after)={after!r}" in execution.last_error


def test_a_caught_failure_is_the_same_in_the_first_run_and_in_replays(carrier: Carrier) -> None:
    work = Work(error=lambda: KeyError("kö\x00y"))
    seen: list[tuple[Any, ...]] = []

    def body(ctx: Any) -> None:
        try:
            ctx.step(work, name="work")
        except StepFailed as error:
            seen.append(
                (type(error), error.args, error.step_id, error.error_type, error.message, error.attempts)
            )
        ctx.sleep("nap", 5)

    execution = carrier.run(carrier.flow(body).start())
    carrier.wake(execution)
    carrier.replay(execution)

    assert len(seen) == 3 and len(set(seen)) == 1 and work.runs == 1
    assert seen[0][2:] == ("work#1", "KeyError", "'kö\\x00y'", 1)


def test_a_failure_that_ended_the_execution_is_no_history(carrier: Carrier) -> None:
    """So that a retry runs the failed step again, and only that."""
    work, first = Work(succeed_at=2), Work(succeed_at=1)

    def body(ctx: Any) -> Any:
        ctx.step(first, name="first")
        return ctx.step(work, name="work")

    execution = carrier.run(carrier.flow(body).start())
    assert execution.status == "failed" and recorded(execution) == ["first#1"]
    assert "step 'work#1' failed" in execution.last_error and execution.errors[0]["kind"] == "error"

    assert retry([execution.pk], actor="test")[0].done
    assert carrier.run(execution).output == 2 and first.runs == 1


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "output of work#1: a builtins.object is not storable as JSON"),
        ({"rows": [1, float("nan")]}, "output of work#1.rows[1]: nan is not JSON"),
        ("a\x00b", "output of work#1: a NUL character at position 1"),
        ("x" * 1_100_000, "bytes of JSON are more than the limit"),
    ],
    ids=["type", "nan", "nul", "size"],
)
def test_an_unstorable_output_fails_the_step_by_name(carrier: Carrier, value: Any, told: str) -> None:
    runs: list[int] = []

    def work() -> Any:
        runs.append(1)
        return value

    def body(ctx: Any) -> Any:
        return ctx.step(work, retry=Backoff(base=0, attempts=3))

    execution = carrier.run(carrier.flow(body).start())

    assert execution.status == "failed" and "step 'work#1' failed" in execution.last_error
    assert told in execution.last_error and len(runs) == 1 and not StepOutput.objects.exists()


def test_a_step_that_runs_too_long_is_interrupted(carrier: Carrier) -> None:
    from pgjobs.worker.deadlines import enforce

    watch = threading.Event()

    def watcher() -> None:
        while not watch.wait(0.05):
            enforce(carrier.holdings.all(), 30)

    def slow() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            threading.Event().wait(0.01)

    def body(ctx: Any) -> str:
        try:
            ctx.step(slow, timeout=0.2)
        except StepFailed as error:
            told = error.error_type
        return str(ctx.step(lambda: told, name="next", timeout=timedelta(seconds=20)))

    thread = threading.Thread(target=watcher)
    thread.start()
    try:
        execution = carrier.run(carrier.flow(body).start())
    finally:
        watch.set()
        thread.join()

    assert (execution.status, execution.output) == ("succeeded", "JobTimeout"), execution.last_error
    assert recorded(execution) == ["slow#1", "next#1"]


def test_an_output_that_cannot_be_stored_fails_the_execution(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(lambda ctx: {1, 2}).start())

    assert execution.status == "failed" and "output: a builtins.set is not storable" in execution.last_error


def test_numbers_beyond_json_and_model_arguments(carrier: Carrier) -> None:
    """Arguments need not be storable: they are only compared."""
    effect = Effect.objects.create(key="one", pid=0)

    def pk_of(what: Effect, **more: Any) -> int:
        return int(what.pk)

    def body(ctx: Any) -> Any:
        mine = Effect.objects.get()
        got = ctx.step(pk_of, mine, extra={1, 2}, weight=Decimal("1.10"), number=float("nan"))
        ctx.sleep("nap", 5)
        return got

    execution = carrier.run(carrier.flow(body).start())

    assert carrier.wake(execution).output == effect.pk, execution.pause_reason


def test_a_turn_leaves_no_connection_and_no_open_transaction(carrier: Carrier) -> None:
    def leave_open() -> None:
        connection.set_autocommit(False)
        Effect.objects.create(key="lost", pid=0)

    def body(ctx: Any) -> str:
        ctx.step(leave_open)
        try:
            ctx.step(int)
        except DurableCallRefused as error:
            return str(error)
        return "went on"

    execution = carrier.run(carrier.flow(body).start())

    assert not Effect.objects.exists() and recorded(execution) == ["leave_open#1"]
    assert "inside a transaction of your own" in execution.output
