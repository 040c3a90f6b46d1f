"""What a body may not do: senseless calls, durable calls at the wrong place, holding back the end of its turn."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pgjobs.exceptions import DurableCallRefused, StepFailed
from pgjobs.models import StepOutput
from pgjobs.worker.recorder import StepRequest
from pgjobs.workflows.journal import StepRow
from tests.jobsapp.models import Effect
from tests.workflows.carrier import Carrier, recorded


class Nameless:
    """Callable, and of no name to be recorded under."""

    def __call__(self) -> None: ...


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
    ("nameless function", lambda ctx: ctx.step(Nameless()), "1 to 150 characters"),
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
    assert recorded(execution) == ["outer#1", "block#1", "called#1", "outside#1"]
    assert not execution.waits.exists()
    assert list(Effect.objects.values_list("key", flat=True)) == ["mine", "block"]


def test_one_step_that_the_database_refuses_does_not_stall_the_others(carrier: Carrier) -> None:
    """The recorder writes many executions' steps in one statement."""
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
