"""Steps: attempts, delays, timeouts, and failures that a replay sees as the first run did."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction

from pgjobs import Backoff, Fail, Retry
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
    assert work.runs == 4 and "after 4 attempt(s)" in execution.last_error


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


SENSELESS = [
    ("sleep a second ago", lambda ctx: ctx.sleep("nap", -1), "duration=-1"),
    ("sleep for nan", lambda ctx: ctx.sleep("nap", float("nan")), "duration=nan"),
    ("sleep for ever", lambda ctx: ctx.sleep("nap", timedelta(days=40_000)), "ten years"),
    ("sleep for text", lambda ctx: ctx.sleep("nap", "5"), "duration='5'"),
    ("sleep for true", lambda ctx: ctx.sleep(True), "duration=True"),
    ("sleep until a naive time", lambda ctx: ctx.sleep_until("x", ctx.now().replace(tzinfo=None)), "aware"),
    ("sleep until year 9999", lambda ctx: ctx.sleep_until("x", ctx.now().replace(year=9999)), "9000"),
    ("signal timeout", lambda ctx: ctx.wait_signal("go", timeout=-1), "timeout=-1"),
    ("approval timeout", lambda ctx: ctx.approval("ok", timeout=float("inf")), "timeout=inf"),
    ("approval rule", lambda ctx: ctx.approval("ok", on_timeout="explode"), "on_timeout='explode'"),
    ("approval quorum", lambda ctx: ctx.approval("ok", quorum=0), "quorum=0"),
    ("gather timeout", lambda ctx: ctx.gather([], timeout=-5), "timeout=-5"),
    ("step timeout", lambda ctx: ctx.step(int, timeout=-2), "timeout=-2"),
    ("no step timeout", lambda ctx: ctx.step(int, timeout=0), "timeout=0"),
    ("step timeout as text", lambda ctx: ctx.step(int, timeout="5"), "timeout='5'"),
    ("retry policy", lambda ctx: ctx.step(int, retry=3), "retry=3"),
    ("hash in a name", lambda ctx: ctx.step(int, name="a#2"), "none of # [ ] ~"),
    ("bracket in a name", lambda ctx: ctx.sleep("a[1]", 1), "none of # [ ] ~"),
    ("no name", lambda ctx: ctx.wait_signal(""), "1 to 150 characters"),
    ("long name", lambda ctx: ctx.step(int, name="x" * 151), "1 to 150 characters"),
    ("NUL in a name", lambda ctx: ctx.step(int, name="a\x00"), "NUL"),
    ("surrogate in a name", lambda ctx: ctx.step(int, name="a\ud800"), "surrogate"),
    ("surrogate in a key", lambda ctx: ctx.step(int, key="a\ud800"), "surrogate"),
    ("long key", lambda ctx: ctx.step(int, key="x" * 121), "120 characters"),
    ("nameless function", lambda ctx: ctx.step(Work(1)), "1 to 150 characters"),
    ("no call of a job", lambda ctx: ctx.gather([int]), "is not a job's call"),
    ("the same key", lambda ctx: [ctx.step(int, key="k") for _ in range(2)], "key='k' was used before"),
]


def test_senseless_calls_are_refused_before_anything_is_written(carrier: Carrier) -> None:
    refused: dict[str, str] = {}

    def body(ctx: Any) -> None:
        for label, call, _ in SENSELESS:
            try:
                call(ctx)
            except Exception as error:
                refused[label] = f"{type(error).__name__}: {error}"
        raise RuntimeError("seen enough")

    execution = carrier.run(carrier.flow(body).start())

    assert "seen enough" in execution.last_error
    missing = [
        (label, told, refused.get(label))
        for label, _, told in SENSELESS
        if told not in refused.get(label, "")
    ]
    assert not missing
    assert not execution.waits.exists() and recorded(execution) == ["int[k]"]


def test_a_durable_call_at_the_wrong_place_is_refused(carrier: Carrier) -> None:
    refused: dict[str, str] = {}

    def note(label: str, call: Callable[[], object]) -> None:
        try:
            call()
        except (DurableCallRefused, StepFailed) as error:
            refused[label] = str(error)

    def in_thread(call: Callable[[], object]) -> None:
        errors: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    def body(ctx: Any) -> None:
        def nested() -> None:
            ctx.step(int, name="inner")

        with transaction.atomic():
            Effect.objects.create(key="mine", pid=0)
            note("transaction", lambda: ctx.sleep("nap", 5))
        note("step", lambda: ctx.step(nested, name="outer"))
        note("thread", lambda: in_thread(lambda: ctx.step(int)))
        with ctx.atomic("block"):
            note("block", lambda: ctx.wait_signal("go"))
        note("function", lambda: ctx.atomic("called", nested))
        with ctx.atomic("outside"):
            Effect.objects.create(key="block", pid=0)
        raise RuntimeError("seen enough")

    execution = carrier.run(carrier.flow(body).start())

    assert "seen enough" in execution.last_error, execution.last_error
    assert {label: told for label, told in refused.items() if "ctx." not in told} == {}
    assert "inside a transaction of your own" in refused["transaction"]
    assert "inside step 'outer#1'" in refused["step"] and "DurableCallRefused" in refused["step"]
    assert "another thread" in refused["thread"]
    assert "inside step 'block#1'" in refused["block"] and "inside step 'called#1'" in refused["function"]
    assert recorded(execution) == ["outer#1", "block#1", "outside#1"] and not execution.waits.exists()
    assert list(Effect.objects.values_list("key", flat=True)) == ["mine", "block"]


def test_one_step_that_the_database_refuses_does_not_stall_the_others(carrier: Carrier) -> None:
    """The recorder writes many executions' steps in one statement."""
    from pgjobs.worker.recorder import StepRequest
    from pgjobs.workflows.journal import StepRow

    flow = carrier.flow(lambda ctx: None)
    flow.start()
    flow.start()
    held = [carrier.claim(), carrier.claim()]
    outputs = ['"\ud800"', "1"]
    requests = []
    for holding, output in zip(held, outputs, strict=True):
        assert holding is not None
        row = StepRow(holding.lease, "a#1", "step", 0, "", output)
        requests.append(StepRequest(holding, row))
    carrier.recorder._requests.extend(requests)  # both at once: they are one group
    carrier.recorder.wake()

    with pytest.raises(UnicodeEncodeError):
        requests[0].answer.result(30)
    requests[1].answer.result(30)
    assert StepOutput.objects.get().output == 1


def test_a_swallowed_suspension_is_caught_at_the_next_durable_call(
    carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    reached: list[str] = []

    def body(ctx: Any) -> str:
        try:
            ctx.sleep("nap", 5)
        except BaseException:
            reached.append("swallowed")
        ctx.step(reached.append, "step", name="step")
        return "done"

    execution = carrier.run(carrier.flow(body).start())
    assert (execution.status, reached, recorded(execution)) == ("waiting", ["swallowed"], [])
    assert "swallowed its suspension" in caplog.text

    assert carrier.wake(execution).output == "done"
    assert reached == ["swallowed", "step"]


@pytest.mark.parametrize("then", ["return", "raise"])
def test_what_follows_a_swallowed_suspension_counts_for_nothing(carrier: Carrier, then: str) -> None:
    def body(ctx: Any) -> str:
        try:
            ctx.sleep("nap", 5)
        except BaseException:
            if then == "raise":
                raise ValueError("wrong") from None
            return "wrong"
        return "right"

    execution = carrier.run(carrier.flow(body).start())
    assert (execution.status, execution.output, execution.last_error) == ("waiting", None, "")
    assert carrier.wake(execution).output == "right"


@pytest.mark.parametrize("then", ["return", "raise", "call"])
def test_what_follows_a_swallowed_stop_counts_for_nothing(carrier: Carrier, then: str) -> None:
    """The worker shuts down: a body that catches the stop must not end the execution without its steps."""

    def body(ctx: Any) -> str:
        try:
            ctx.step(int, name="work")
        except BaseException:
            if then == "raise":
                raise ValueError("wrong") from None
            if then == "call":
                ctx.sleep("nap", 5)
            return "wrong"
        return "right"

    execution = carrier.flow(body).start()
    holding = carrier.claim()
    assert holding is not None
    carrier.stopping.set()
    carrier.start(holding).finish()

    execution.refresh_from_db()
    assert (execution.status, execution.lease_token) == ("running", holding.lease.token)
    assert carrier.holdings.all() == [holding], "it is handed back with the rest"
    assert not StepOutput.objects.exists() and not execution.waits.exists()


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
