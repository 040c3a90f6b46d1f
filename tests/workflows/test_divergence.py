"""The code has changed under an execution: it stops, says where and both sides, and goes on after a fix."""

from collections.abc import Callable
from typing import Any

import pytest

from pgjobs.exceptions import Diverged
from pgjobs.models import Execution, StepOutput
from pgjobs.workflows.approvals import decide, pending_for
from pgjobs.workflows.control import resume, retry
from tests.jobsapp.jobs import echo, ok
from tests.workflows.carrier import Carrier, finish_jobs, recorded
from tests.workflows.rows import user

Body = Callable[[Any], Any]


def steps(*calls: str) -> Body:
    """A body of steps by name, with "zzz" for a sleep; an argument may follow a colon."""

    def body(ctx: Any) -> str:
        for call in calls:
            name, _, argument = call.partition(":")
            if name == "zzz":
                ctx.sleep("nap", float(argument or 5))
            else:
                ctx.step(lambda x: x, argument, name=name)
        return "done"

    return body


BEFORE = ("a", "b", "zzz", "c")
CHANGES: list[tuple[str, tuple[str, ...], list[str]]] = [
    (
        "added",
        ("a", "new", "b", "zzz", "c"),
        ["'new#1'", "as call 1, where the history has step 'b#1' as call 1"],
    ),
    ("removed", ("a", "zzz", "c"), ["'nap#1'", "the history has it as call 2, the code as call 1"]),
    ("renamed", ("a", "b2", "zzz", "c"), ["'b2#1'", "where the history has step 'b#1' as call 1"]),
    ("reordered", ("b", "a", "zzz", "c"), ["'b#1'", "the history has it as call 1, the code as call 0"]),
    ("arguments", ("a", "b:2", "zzz", "c"), ["'b#1'", "its arguments are others"]),
    ("duration", ("a", "b", "zzz:6", "c"), ["'nap#1'", "its arguments are others"]),
    ("wait removed", ("a", "b", "c"), ["'c#1'", "where the history has sleep 'nap#1' as call 2"]),
    ("shortened", ("a", "b"), ["'nap#1'", "as call 2, the code returned without calling it"]),
    ("kind", ("a", "b", "nap", "c"), ["'nap#1'", "the history has a sleep here, the code calls a step"]),
]


@pytest.mark.parametrize(("after", "told"), [change[1:] for change in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_sleeper_wakes_to_changed_code(carrier: Carrier, after: tuple[str, ...], told: list[str]) -> None:
    execution = carrier.run(carrier.flow(steps(*BEFORE)).start())
    carrier.flow(steps(*after))

    assert carrier.wake(execution).status == "paused"
    assert "diverged from the history at step" in execution.pause_reason
    assert [part for part in told if part not in execution.pause_reason] == []
    assert "ctx.changed" in execution.pause_reason and "resume" in execution.pause_reason
    assert recorded(execution) == ["a#1", "b#1"], "nothing was run or recorded"

    carrier.flow(steps(*BEFORE))
    assert resume([execution.pk], actor="test")[0].done
    assert carrier.run(execution).output == "done" and execution.pause_reason == ""


@pytest.mark.parametrize(
    "after",
    [("a", "b", "zzz", "c", "d"), ("a", "b", "zzz"), ("a", "b", "zzz", "c2"), ("a", "b", "zzz", "c:9")],
    ids=["added at the end", "last one removed", "last one renamed", "other arguments"],
)
def test_what_lies_ahead_may_change(carrier: Carrier, after: tuple[str, ...]) -> None:
    execution = carrier.run(carrier.flow(steps(*BEFORE)).start())
    carrier.flow(steps(*after))

    assert carrier.wake(execution).output == "done", execution.pause_reason


def test_keys_let_a_loop_change_its_order_ahead_only(carrier: Carrier) -> None:
    def loop(*keys: int) -> Body:
        def body(ctx: Any) -> list[int]:
            got = []
            for key in keys:
                got.append(ctx.step(lambda key=key: key, name="n", key=key))
                ctx.sleep("nap", 5, key=key)
            return got

        return body

    execution = carrier.run(carrier.flow(loop(1, 2, 3)).start())
    carrier.wake(execution)
    carrier.flow(loop(1, 2, 5, 4))
    carrier.wake(execution)
    carrier.wake(execution)
    assert carrier.wake(execution).output == [1, 2, 5, 4]

    carrier.flow(loop(2, 1, 5, 4))
    assert "'n[2]'" in carrier.replay(execution).pause_reason


def test_policy_fail(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(steps(*BEFORE), on_divergence="fail").start())
    carrier.flow(steps("a", "b2", "zzz", "c"), on_divergence="fail")

    assert carrier.wake(execution).status == "failed"
    assert "Diverged" in execution.last_error and "'b2#1'" in execution.last_error


def test_policy_warn_goes_on(carrier: Carrier, caplog: pytest.LogCaptureFixture) -> None:
    execution = carrier.run(carrier.flow(steps(*BEFORE), on_divergence="warn").start())
    carrier.flow(steps("a", "new", "b", "zzz", "c"), on_divergence="warn")

    assert carrier.wake(execution).output == "done"
    assert sorted(recorded(execution)) == ["a#1", "b#1", "c#1", "new#1"]
    assert f"execution={execution.pk} diverged: 'new#1'" in caplog.text


def gathering(*calls: Any, swallow: bool = False, name: str = "gather") -> Body:
    def body(ctx: Any) -> Any:
        try:
            return list(ctx.gather(calls, name=name))
        except Diverged:
            if not swallow:
                raise
        return "swallowed"

    return body


def answered_by(call: Body) -> Body:
    """A body that asks for a record under the id "x#1", or "gather#1", and then waits."""

    def body(ctx: Any) -> Any:
        told = call(ctx)
        ctx.sleep("nap", 5)
        return told

    return body


AS_STEP = answered_by(lambda ctx: ctx.step(lambda: "step", name="x"))
CANNOT_ANSWER: list[tuple[str, Body, Body, str]] = [
    ("step for approval", AS_STEP, answered_by(lambda ctx: ctx.approval("x").approved), "has a step here"),
    ("step for sleep", AS_STEP, answered_by(lambda ctx: ctx.sleep("x", 1)), "has a step here"),
    ("sleep for step", answered_by(lambda ctx: ctx.sleep("x", 0)), AS_STEP, "has a sleep here"),
    (
        "step for gather",
        answered_by(lambda ctx: ctx.step(lambda: 1, name="gather")),
        answered_by(lambda ctx: ctx.gather([ok.s(1)])),
        "has a step here, the code calls a gather",
    ),
]


@pytest.mark.parametrize("change", CANNOT_ANSWER, ids=[change[0] for change in CANNOT_ANSWER])
def test_policy_warn_pauses_where_nothing_recorded_can_answer(
    carrier: Carrier, change: tuple[str, Body, Body, str]
) -> None:
    _, before, after, told = change
    execution = carrier.run(carrier.flow(before, on_divergence="warn").start())
    if not execution.waits.filter(step_id="nap#1").exists():
        carrier.wake(execution)
    carrier.flow(after, on_divergence="warn")

    assert carrier.wake(execution).status == "paused" and told in execution.pause_reason
    carrier.flow(before, on_divergence="warn")
    resume([execution.pk], actor="test")
    assert carrier.run(execution).status == "succeeded", execution.pause_reason


def test_policy_warn_lets_a_step_become_atomic(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(AS_STEP, on_divergence="warn").start())
    carrier.flow(answered_by(lambda ctx: ctx.atomic("x", lambda: "again")), on_divergence="warn")

    assert carrier.wake(execution).output == "step"


@pytest.mark.parametrize("calls", [[ok.s(1)], [ok.s(1), ok.s(3)], [ok.s(1), ok.s(2), ok.s(3)]])
def test_policy_warn_pauses_at_a_gather_that_changed_under_way(carrier: Carrier, calls: Any) -> None:
    execution = carrier.run(carrier.flow(gathering(ok.s(1), ok.s(2)), on_divergence="warn").start())
    carrier.flow(gathering(*calls), on_divergence="warn")
    finish_jobs()

    assert carrier.run(execution).status == "paused", execution.output
    assert "its arguments are others" in execution.pause_reason
    assert not execution.waits.filter(target_id=None).exists()


def test_policy_warn_closes_what_nobody_comes_back_to(carrier: Carrier) -> None:
    ann = user("ann", "pgjobs.decide_wait")

    def before(ctx: Any) -> None:
        ctx.approval("x")

    execution = carrier.run(carrier.flow(before, on_divergence="warn").start())
    assert pending_for(ann).count() == 1
    carrier.flow(lambda ctx: "without", on_divergence="warn")
    Execution.objects.filter(pk=execution.pk).update(status="enqueued")

    assert carrier.run(execution).output == "without"
    assert execution.waits.get().resolution == {"cancelled": True} and not pending_for(ann)


def test_what_failed_at_a_change_asks_nobody_until_it_is_retried(carrier: Carrier) -> None:
    ann = user("ann", "pgjobs.decide_wait")

    def before(ctx: Any) -> bool:
        return bool(ctx.approval("x"))

    execution = carrier.run(carrier.flow(before, on_divergence="fail").start())
    carrier.flow(lambda ctx: "without", on_divergence="fail")
    Execution.objects.filter(pk=execution.pk).update(status="enqueued")
    assert carrier.run(execution).status == "failed" and not pending_for(ann)

    carrier.flow(before, on_divergence="fail")
    retry([execution.pk], actor="test")
    assert carrier.run(execution).status == "waiting"
    decide(pending_for(ann).get().pk, approved=True, actor=ann)
    assert carrier.run(execution).output is True


def test_policy_warn_does_not_flood_the_log(carrier: Carrier, caplog: pytest.LogCaptureFixture) -> None:
    execution = carrier.run(carrier.flow(steps(*"abcdefghijklmno", "zzz"), on_divergence="warn").start())
    carrier.flow(steps("new", *"abcdefghijklmno", "zzz"), on_divergence="warn")

    assert carrier.wake(execution).status == "succeeded"
    assert caplog.text.count("diverged: ") == 10 and "diverged at 7 more of its calls" in caplog.text


def test_a_swallowed_divergence_still_pauses(carrier: Carrier) -> None:
    def after(ctx: Any) -> str:
        try:
            ctx.step(lambda: 1, name="new")
        except Exception as error:
            assert isinstance(error, Diverged)
        try:
            ctx.step(lambda: 1, name="another")
        except Diverged:
            return "swallowed"
        return "went on"

    execution = carrier.run(carrier.flow(steps(*BEFORE)).start())
    carrier.flow(after)

    assert carrier.wake(execution).status == "paused" and "'new#1'" in execution.pause_reason
    assert execution.output is None and recorded(execution) == ["a#1", "b#1"]


GATHERS: list[tuple[str, Body, str]] = [
    ("another item", gathering(ok.s(1), ok.s(3)), "its arguments are others"),
    ("one more", gathering(ok.s(1), ok.s(2), ok.s(3)), "its arguments are others"),
    ("another job", gathering(ok.s(1), echo.s(value=2)), "its arguments are others"),
    ("swallowed", gathering(ok.s(1), swallow=True), "its arguments are others"),
    ("renamed", gathering(ok.s(1), ok.s(2), name="g2"), "'gather#1' as call 0"),
    ("removed", lambda ctx: "done", "'gather#1': the history has it as call 0"),
]


@pytest.mark.parametrize("under_way", [True, False], ids=["under way", "recorded"])
@pytest.mark.parametrize("change", GATHERS, ids=[gather[0] for gather in GATHERS])
def test_a_gather_that_changed(carrier: Carrier, change: tuple[str, Body, str], under_way: bool) -> None:
    _, after, told = change

    def before(ctx: Any) -> None:
        ctx.gather([ok.s(1), ok.s(2)])
        if not under_way:
            ctx.sleep("nap", 5)

    execution = carrier.run(carrier.flow(before).start())
    finish_jobs()
    if under_way:
        carrier.flow(after)
    carrier.run(execution)
    if not under_way:
        carrier.flow(after)
        carrier.wake(execution)

    assert execution.status == "paused", (execution.status, execution.output)
    assert (
        told.replace("job 'gather", "job 'gather" if under_way else "step 'gather") in execution.pause_reason
    )
    assert StepOutput.objects.count() == (0 if under_way else 1)


def test_changed_lets_both_paths_live(carrier: Carrier) -> None:
    def after(ctx: Any) -> str:
        ctx.step(lambda x: x, "", name="a")
        if ctx.changed("two letters"):
            ctx.step(lambda x: x, "", name="bb")
        else:
            ctx.step(lambda x: x, "", name="b")
        ctx.sleep("nap", 5)
        ctx.step(lambda x: x, "", name="c")
        return "done"

    old = carrier.run(carrier.flow(steps(*BEFORE)).start())
    flow = carrier.flow(after)
    new = carrier.run(flow.start())

    assert carrier.wake(old).output == "done" and carrier.wake(new).output == "done"
    assert recorded(old) == ["a#1", "b#1", "c#1"]
    assert recorded(new) == ["a#1", "two letters[changed]", "bb#1", "c#1"]


def test_a_version_is_that_of_the_start(carrier: Carrier) -> None:
    seen: list[int] = []

    def body(ctx: Any) -> None:
        seen.append(ctx.version)
        ctx.sleep("nap", 5)

    old = carrier.run(carrier.flow(body, version=1).start())
    new = carrier.run(carrier.flow(body, version=2).start())
    carrier.wake(old)
    carrier.wake(new)

    assert seen == [1, 2, 1, 2]
    assert set(Execution.objects.values_list("version", flat=True)) == {1, 2}
