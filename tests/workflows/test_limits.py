"""How long an execution may grow, how wide a gather, how long a turn may say nothing; and ends that a body swallows."""

import threading
from typing import Any

import pytest

from pgjobs.exceptions import InvalidOption, SignatureMismatch, TooManyCalls
from pgjobs.models import Execution, Job
from pgjobs.worker import lingering
from pgjobs.workflows.control import resume
from tests.jobsapp.jobs import ok
from tests.workflows.carrier import Carrier, recorded


def many(ctx: Any, count: int) -> str:
    for n in range(count):
        ctx.step(int, name="n", key=str(n))
    ctx.sleep("nap", 5)
    return "done"


def test_a_long_history_is_warned_of_once(
    carrier: Carrier, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PGJOBS = {"WORKFLOW_WARN_CALLS": 3, "WORKFLOW_MAX_CALLS": 9}
    flow = carrier.flow(many)
    carrier.run(flow.start(count=2))
    assert "durable calls" not in caplog.text

    execution = carrier.run(flow.start(count=6))
    carrier.wake(execution)

    assert execution.output == "done"
    assert caplog.text.count("durable calls") == 1
    assert f"execution={execution.pk} has made 3 durable calls" in caplog.text
    assert "ctx.continue_as_new" in caplog.text


@pytest.mark.parametrize("swallow", [False, True])
def test_too_long_a_history_pauses_and_goes_on_when_it_may(
    carrier: Carrier, settings: Any, swallow: bool
) -> None:
    def body(ctx: Any) -> str:
        try:
            return many(ctx, 5)
        except Exception as error:
            assert isinstance(error, TooManyCalls)
            if not swallow:
                raise
        return "swallowed"

    settings.PGJOBS = {"WORKFLOW_MAX_CALLS": 4, "WORKFLOW_WARN_CALLS": 4}
    execution = carrier.run(carrier.flow(body).start())

    assert (execution.status, len(recorded(execution))) == ("paused", 4)
    assert "durable call 5 of this execution, and WORKFLOW_MAX_CALLS is 4" in execution.pause_reason
    assert "resume" in execution.pause_reason

    settings.PGJOBS = {}
    resume([execution.pk], actor="ann")
    assert carrier.run(execution).status == "waiting"
    settings.PGJOBS = {"WORKFLOW_MAX_CALLS": 4}
    assert carrier.wake(execution).output == "done", "what is recorded is replayed, however long"


def test_a_history_at_its_limit_can_continue_as_new(carrier: Carrier, settings: Any) -> None:
    settings.PGJOBS = {"WORKFLOW_MAX_CALLS": 3, "WORKFLOW_WARN_CALLS": 3}

    def body(ctx: Any, left: int) -> str:
        for n in range(3):
            ctx.step(int, name="n", key=str(n))
        if left:
            ctx.continue_as_new(left=left - 1)
        return "done"

    first = carrier.flow(body).start(left=1)
    carrier.run(first)
    assert first.result(timeout=1) == "done"


def test_too_wide_a_gather_is_refused_before_a_job_is_enqueued(carrier: Carrier, settings: Any) -> None:
    settings.PGJOBS = {"WORKFLOW_MAX_GATHER": 3}
    told: list[str] = []

    def body(ctx: Any) -> Any:
        try:
            ctx.gather([ok.s(n) for n in range(4)])
        except InvalidOption as error:
            told.append(str(error))
        return list(ctx.gather([ok.s(n) for n in range(3)], min_successful=0))

    execution = carrier.run(carrier.flow(body).start())
    assert execution.output == [None] * 3 and Job.objects.count() == 3
    assert "4 jobs" in told[0] and "WORKFLOW_MAX_GATHER" in told[0] and "in parts" in told[0]


@pytest.mark.parametrize("then", ["return", "raise", "call", "sleep"])
def test_a_swallowed_continuation_stands(
    carrier: Carrier, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    def body(ctx: Any, left: int) -> str:
        if not left:
            return "the end"
        try:
            ctx.continue_as_new(left=left - 1)
        except BaseException:
            if then == "raise":
                raise ValueError("wrong") from None
            if then == "call":
                ctx.step(int, name="after")
            if then == "sleep":
                ctx.sleep("nap", 60)
        return "wrong"

    first = carrier.flow(body).start(left=1, key="k")
    carrier.run(first)

    old, new = Execution.objects.order_by("id")
    assert [(one.status, one.key) for one in (old, new)] == [("succeeded", None), ("succeeded", "k")]
    assert (old.output, new.output, new.input) == (None, "the end", {"left": 0})
    assert recorded(old) == [] and not old.waits.exists()
    assert ("swallowed ctx.continue_as_new()" in caplog.text) is (then in ("call", "sleep"))


def test_a_refusal_says_what_was_not_done(carrier: Carrier) -> None:
    told: list[str] = []

    def body(ctx: Any, left: int = 0) -> None:
        try:
            ctx.continue_as_new(right=1)
        except SignatureMismatch as error:
            told.append(str(error))

    flow = carrier.flow(body)
    with pytest.raises(SignatureMismatch, match="No execution was started"):
        flow.start(right=1)
    carrier.run(flow.start())
    assert "Nothing has ended." in told[0]


def test_a_turn_that_makes_no_durable_call_is_told_of_with_its_place(
    carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def spins(ctx: Any) -> str:
        began.set()
        go_on.wait(30)
        ctx.step(int, name="at last")
        return "done"

    carrier.flow(spins).start()
    holding = carrier.claim()
    assert holding is not None
    assert lingering.tell([holding], 0.001) == [], "it has not begun"
    turning = carrier.start(holding)
    assert began.wait(30) and holding.called_at is not None
    assert lingering.tell([holding], 60) == []

    holding.called_at -= 70
    assert lingering.tell([holding], 60) == [holding]
    assert lingering.tell([holding], 60) == [], "not before the time has doubled"
    assert f"execution={holding.lease.pk}" in caplog.text and "in spins" in caplog.text
    holding.called_at -= 60
    assert lingering.tell([holding], 60) == [holding]

    go_on.set()
    turning.finish()
    assert lingering.tell([holding], 0) == [], "it has ended"
