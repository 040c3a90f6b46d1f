"""Replay: what a body sees is the same, and of the same type, in the first run and in every later one."""

import datetime as dt
import uuid
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest
from django.test.utils import CaptureQueriesContext

from pgjobs import Backoff, codec
from pgjobs.models import Execution, StepOutput, Wait
from pgjobs.queue.outcomes import Succeeded
from pgjobs.workflows.history import INLINE_BYTES
from tests.jobsapp.jobs import echo
from tests.support.own_database import connection
from tests.workflows.carrier import Carrier, finish_jobs, recorded, waits
from tests.workflows.rows import user

VALUES = [
    dt.datetime(2026, 11, 30, 1, 2, 3, 4, tzinfo=dt.UTC),
    dt.datetime(2026, 11, 30, 1, 2, 3),
    dt.date(2026, 11, 30),
    dt.time(1, 2, 3),
    dt.timedelta(days=-1, seconds=3, microseconds=7),
    Decimal("10.00"),
    uuid.UUID(int=7),
    (1, (2, 3)),
    1e16,
    -0.0,
    2**70,
    {"$date": "2026-11-30"},
    {"$dict": {"$float": "1.0"}},
    {"a": [None, True, "ü\u2028"]},
    None,
    "",
]


def typed(value: Any) -> Any:
    """A value with its types, comparable."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [typed(inner) for inner in value]
    return type(value).__name__, repr(value)


def test_values_are_the_same_in_the_first_run_and_in_replays(carrier: Carrier) -> None:
    seen: list[Any] = []

    def body(ctx: Any) -> None:
        stepped = [ctx.step(lambda value: value, value, name="give") for value in VALUES]
        with ctx.atomic("block") as block:
            block.output = VALUES
        called = ctx.atomic("called", lambda: VALUES)
        seen.append(typed([stepped, block.output, called]))
        ctx.sleep("nap", 5)
        raise KeyboardInterrupt if len(seen) == 1 else StopIteration

    execution = carrier.run(carrier.flow(body).start())
    carrier.wake(execution)
    carrier.replay(execution)

    assert len(seen) == 3 and seen[0] == seen[1] == seen[2]
    assert seen[0][1][0] == ("list", [typed(list_of(value)) for value in VALUES])


def list_of(value: Any) -> Any:
    """JSON has no tuples: they are lists from the first run on."""
    return [list_of(inner) for inner in value] if isinstance(value, tuple) else value


def test_results_of_jobs_and_payloads_of_signals_keep_their_types(carrier: Carrier) -> None:
    seen: dict[str, list[Any]] = defaultdict(list)

    def child(ctx: Any) -> Any:
        return VALUES

    def body(ctx: Any) -> None:
        seen["gather"].append(typed(list(ctx.gather([echo.s(n=1), echo.s(n=2)]))))
        seen["job"].append(typed(ctx.job(echo.s(n=3))))
        seen["signal"].append(typed(ctx.wait_signal("go")))
        seen["child"].append(typed(ctx.child(started)))

    started = carrier.flow(child, name="tests.child")
    execution = carrier.flow(body).start()
    execution.signal("go", VALUES)
    text = codec.dumps(VALUES, label="result", max_bytes=10_000)
    for _ in range(3):
        carrier.run(execution)
        finish_jobs(Succeeded(text))
    carrier.replay(execution)

    assert execution.status == "succeeded", execution.last_error
    expected = [list_of(value) for value in VALUES]
    assert {name: len(told) > 1 for name, told in seen.items()} == dict.fromkeys(seen, True)
    assert all(told == typed(expected) for name in ("job", "signal", "child") for told in seen[name]), seen
    assert all(told == typed([expected, expected]) for told in seen["gather"]), seen


def test_now_uuid_and_random_agree(carrier: Carrier) -> None:
    seen: list[list[Any]] = []

    def boom() -> None:
        raise ValueError("boom")

    def body(ctx: Any) -> None:
        told: list[Any] = [ctx.now(), ctx.uuid(), ctx.random.random()]
        seen.append(told)
        ctx.step(lambda: 1, name="one")
        told += [ctx.now(), ctx.uuid()]
        try:
            ctx.step(boom)
        except Exception:
            told.append(ctx.now())
        ctx.sleep("nap", 5)
        told += [ctx.now(), ctx.uuid(), ctx.random.randint(1, 10**9)]
        ctx.atomic("called", lambda: 1)
        told.append(ctx.now())

    execution = carrier.run(carrier.flow(body).start())
    carrier.wake(execution)
    for _ in range(2):
        carrier.replay(execution)

    first, second, *later = seen
    assert (len(first), len(second)) == (6, 10)
    assert second[:6] == first and later == [second, second]
    assert second[0] == execution.created_at and second[0] < second[3] < second[6] < second[9]
    assert len({second[1], second[4], second[7]}) == 3, "each draw is another"
    assert second[5] == second[3], "a failure is no instant: it is recorded only when the body goes on"


def test_now_does_not_see_the_waits_between_attempts(carrier: Carrier) -> None:
    seen: list[dt.datetime] = []

    def boom() -> None:
        raise ValueError("boom")

    def body(ctx: Any) -> None:
        try:
            ctx.step(boom, retry=Backoff(base=5, attempts=2))
        except Exception:
            seen.append(ctx.now())
        ctx.sleep("nap", 5)

    execution = carrier.run(carrier.flow(body).start())
    carrier.wake(execution)
    carrier.wake(execution)

    assert len(seen) == 2 and seen[0] == seen[1]


def test_draws_inside_steps_and_blocks_do_not_shift_those_outside(carrier: Carrier) -> None:
    """A replay leaves steps and blocks out, and with them what they drew."""
    seen: list[Any] = []
    inside: list[Any] = []

    def draw(ctx: Any) -> None:
        inside.append((ctx.uuid(), ctx.uuid(), ctx.random.random()))

    def body(ctx: Any) -> None:
        ctx.step(lambda: draw(ctx), name="step")
        with ctx.atomic("block"):
            draw(ctx)
        ctx.atomic("called", draw, ctx)
        seen.append((ctx.uuid(), ctx.random.random()))

    execution = carrier.run(carrier.flow(body).start())
    carrier.replay(execution)

    assert execution.status == "succeeded", execution.last_error
    assert len(inside) == 3 and len(seen) == 2 and seen[0] == seen[1]
    drawn = [seen[0][0], *(one for first, second, _ in inside for one in (first, second))]
    assert len(set(drawn)) == 7


def test_a_step_draws_the_same_in_each_of_its_attempts(carrier: Carrier) -> None:
    """So that a uuid can be another system's idempotency key."""
    drawn: list[uuid.UUID] = []

    def pay(ctx: Any) -> None:
        drawn.append(ctx.uuid())
        if len(drawn) < 3:
            raise ConnectionError

    def body(ctx: Any) -> None:
        ctx.step(pay, ctx, retry=Backoff(base=0, attempts=3))

    execution = carrier.run(carrier.flow(body).start())

    assert execution.status == "succeeded", execution.last_error
    assert len(drawn) == 3 and len(set(drawn)) == 1


def test_changed_is_true_for_new_executions_and_false_for_those_beyond(carrier: Carrier) -> None:
    seen: list[bool] = []

    def before(ctx: Any) -> None:
        ctx.step(lambda: 1, name="a")
        ctx.step(lambda: 1, name="b")
        ctx.sleep("nap", 5)
        ctx.step(lambda: 1, name="c")

    def after(ctx: Any) -> None:
        ctx.step(lambda: 1, name="a")
        seen.append(ctx.changed("twice as good"))
        ctx.step(lambda: 1, name="b2" if seen[-1] else "b")
        ctx.sleep("nap", 5)
        ctx.step(lambda: 1, name="c")
        seen.append(ctx.changed("twice as good"))

    old = carrier.run(carrier.flow(before).start())
    new_code = carrier.flow(after)
    assert carrier.wake(old).status == "succeeded", old.pause_reason
    assert (seen, recorded(old)) == ([False, False], ["a#1", "b#1", "c#1"])

    seen.clear()
    new = carrier.run(new_code.start())
    assert carrier.wake(new).status == "succeeded", new.pause_reason
    assert seen == [True, True, True]
    assert recorded(new) == ["a#1", "twice as good[changed]", "b2#1", "c#1"]


def test_changed_is_true_for_executions_that_have_not_come_there_yet(carrier: Carrier) -> None:
    def before(ctx: Any) -> str:
        ctx.step(lambda: 1, name="a")
        ctx.sleep("nap", 5)
        return "old"

    def after(ctx: Any) -> str:
        ctx.step(lambda: 1, name="a")
        ctx.sleep("nap", 5)
        return "new" if ctx.changed("end") else "old"

    execution = carrier.run(carrier.flow(before).start())
    carrier.flow(after)

    assert carrier.wake(execution).output == "new"


def test_continue_as_new_moves_the_key_and_shortens_the_history(carrier: Carrier) -> None:
    def body(ctx: Any, left: int, total: Decimal) -> Any:
        total = ctx.step(lambda: total + 1, name="add")
        if left:
            ctx.continue_as_new(left=left - 1, total=total)
        return total

    first = carrier.flow(body).start(left=2, total=Decimal("0.5"), key="sum")
    while carrier.turn():
        pass

    runs = list(Execution.objects.order_by("id"))
    assert [run.status for run in runs] == ["succeeded"] * 3
    assert [run.key for run in runs] == [None, None, "sum"]
    assert [run.continued_from_id for run in runs] == [None, runs[0].pk, runs[1].pk]
    assert [recorded(run) for run in runs] == [["add#1"]] * 3
    assert first.result(timeout=1) == Decimal("3.5")


def test_continue_as_new_takes_subject_starter_and_place_along(carrier: Carrier) -> None:
    def body(ctx: Any, again: bool) -> None:
        if again:
            ctx.continue_as_new(again=False)

    ann = user("ann")
    started = carrier.flow(body).using(queue="slow", priority=7).start(True, actor=ann, subject=ann)
    assert carrier.run(started).status == "succeeded", started.last_error

    new = Execution.objects.get(continued_from=started)
    assert (new.queue, new.priority, new.started_by, new.subject) == ("slow", 7, str(ann.pk), ann)


@pytest.mark.parametrize("input", [{"again": object()}, {"agian": False}], ids=["unstorable", "unfitting"])
def test_continue_as_new_with_bad_input_is_refused_at_the_call(
    carrier: Carrier, input: dict[str, Any]
) -> None:
    def body(ctx: Any, again: bool) -> None:
        ctx.continue_as_new(**input)

    execution = carrier.run(carrier.flow(body).start(again=True))

    assert (
        execution.status == "failed" and "again" in execution.last_error
    ) or "agian" in execution.last_error
    assert Execution.objects.count() == 1


def test_large_outputs_are_read_when_the_body_comes_to_them(carrier: Carrier) -> None:
    large = "x" * (INLINE_BYTES + 1)
    sizes: list[int] = []

    def body(ctx: Any) -> None:
        got = [ctx.step(lambda: large, name="large"), ctx.step(lambda: "y" * INLINE_BYTES, name="edge")]
        sizes.append(sum(map(len, got)))
        ctx.sleep("nap", 5)

    execution = carrier.run(carrier.flow(body).start())
    Execution.objects.filter(pk=execution.pk).update(status="enqueued")
    holding = carrier.claim()
    assert holding is not None
    records = holding.execution.history.records
    assert records["large#1"].deferred and records["large#1"].output is None
    carrier.start(holding).finish()

    assert sizes == [2 * INLINE_BYTES + 1] * 2


def test_the_claim_reads_a_long_history_in_the_same_number_of_queries(carrier: Carrier) -> None:
    def body(ctx: Any) -> int:
        total: int = sum(ctx.step(lambda n=n: n, name="n", key=n) for n in range(1_000))
        ctx.sleep("nap", 5)
        return total

    def short(ctx: Any) -> None:
        ctx.step(lambda: 1, name="a")
        ctx.sleep("nap", 5)

    def queries(function: Any, rows: int) -> int:
        execution = carrier.flow(function).start()
        StepOutput.objects.bulk_create(
            StepOutput(execution=execution, step_id=f"n[{n}]", kind="step", ordinal=n, output=n)
            for n in range(rows)
        )
        carrier.run(execution)
        Execution.objects.filter(pk=execution.pk).update(status="enqueued")
        with CaptureQueriesContext(connection) as captured:
            holding = carrier.claim()
        assert holding is not None
        assert len(holding.execution.history.records) == max(rows, 1) + 1
        carrier.start(holding).finish()
        return len(captured)

    assert queries(body, 1_000) == queries(short, 0) == 3


def test_a_recorded_step_is_never_run_again(carrier: Carrier) -> None:
    runs: list[str] = []

    def body(ctx: Any) -> None:
        for name in "abc":
            ctx.step(runs.append, name, name=name)
        ctx.sleep("nap", 5)
        ctx.step(runs.append, "d", name="d")

    execution = carrier.run(carrier.flow(body).start())
    carrier.wake(execution)
    for _ in range(3):
        carrier.replay(execution)

    assert runs == ["a", "b", "c", "d"]
    assert waits(execution) == [("nap#1", True)] and Wait.objects.count() == 1
