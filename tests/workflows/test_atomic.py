"""Atomic steps: effects and checkpoint are one commit; a replay leaves the block out, however it is written."""

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import close_old_connections, connection

from pgjobs.exceptions import StepFailed
from pgjobs.leases.reap import reap_lapsed
from pgjobs.models import Execution, StepOutput
from pgjobs.workflows.control import retry
from tests.jobsapp import workflows as flows
from tests.jobsapp.models import Effect
from tests.leases.sessions import sessions
from tests.support.waiting import wait_until
from tests.worker.conftest import Spawn
from tests.workflows.blocks import (
    BODIES,
    begins_with_try,
    begins_with_try_unnamed,
    closure,
    deed,
    deeds,
    empty,
    empty_in_others,
    in_a_helper,
    in_a_loop,
    inside_try,
    named,
    one_line,
    to_an_attribute,
    two_in_a_row,
    unnamed,
)
from tests.workflows.carrier import Carrier, lapse, recorded
from tests.workflows.rows import status


def replayed(carrier: Carrier, body: Callable[[Any], Any]) -> tuple[Any, Any, list[str], list[str]]:
    """Output and deeds of the first run, and of two replays."""
    execution = carrier.run(carrier.flow(body).start())
    assert execution.status == "succeeded", execution.last_error
    first, done = execution.output, deeds()
    carrier.replay(execution)
    assert carrier.replay(execution).status == "succeeded", execution.last_error + execution.pause_reason
    return first, execution.output, done, deeds()


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_replay_leaves_the_block_out(carrier: Carrier, body: Callable[[Any], Any]) -> None:
    first, again, done, done_again = replayed(carrier, body)

    assert again == first
    assert done_again == done and "undone" not in done
    assert len(done) == len(set(done)) or body is in_a_helper


@pytest.fixture
def interrupted_elsewhere() -> Iterator[None]:
    """Another thread was interrupted and sits in C: Python looks for its exception at each call until it comes back."""

    def sits() -> None:
        try:
            ready.set()
            release.acquire()
        except KeyError:
            pass

    ready, release = threading.Event(), threading.Lock()
    release.acquire()
    thread = threading.Thread(target=sits)
    thread.start()
    assert ready.wait(5) and thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyError))
    yield
    assert thread.is_alive()
    release.release()
    thread.join(5)


@pytest.mark.usefixtures("interrupted_elsewhere")
@pytest.mark.parametrize(
    "body", [named, unnamed, empty, empty_in_others, inside_try], ids=lambda body: body.__name__
)
def test_a_replay_does_not_wait_for_a_thread_that_was_interrupted(
    carrier: Carrier, body: Callable[[Any], Any]
) -> None:
    """Up to Python 3.11 a traced call begins only when no exception is on its way to any thread."""
    first, again, done, done_again = replayed(carrier, body)

    assert (again, done_again) == (first, done)


@pytest.mark.parametrize(
    "body", [named, one_line, in_a_loop, inside_try, closure], ids=lambda body: body.__name__
)
def test_the_same_under_a_tracer(carrier: Carrier, body: Callable[[Any], Any]) -> None:
    """Coverage and debuggers trace too: they see the lines, keep their function, and change nothing."""
    lines: set[int] = set()
    kept: list[bool] = []

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is body.__code__:
            lines.add(frame.f_lineno)
            return tracer
        return None

    def traced(ctx: Any) -> Any:
        sys.settrace(tracer)
        try:
            return body(ctx)
        finally:
            kept.append(sys.gettrace() is tracer)
            sys.settrace(None)

    first, again, done, done_again = replayed(carrier, traced)

    assert again == first and done_again == done
    assert kept == [True] * 3 and lines


def test_the_block_and_its_checkpoint_are_one_commit(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        with ctx.atomic("a") as a:
            deed("a")
            a.output = "x"
            raise ValueError("no luck")

    execution = carrier.run(carrier.flow(body).start())

    assert execution.status == "failed"
    assert "step 'a#1' failed after 1 attempt: ValueError: no luck" in execution.last_error
    assert (deeds(), recorded(execution)) == ([], [])


tried: list[str] = []


def fails() -> None:
    tried.append("called")
    deed("a")
    raise ValueError("no luck")


def fails_in_a_block(ctx: Any) -> None:
    with ctx.atomic("a"):
        fails()


def cannot_be_stored(ctx: Any) -> None:
    with ctx.atomic("a") as a:
        deed("a")
        a.output = object()


def loses_its_transaction(ctx: Any) -> None:
    with ctx.atomic("a"):
        deed("a")
        connection.close()


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (fails_in_a_block, "ValueError"),
        (lambda ctx: ctx.atomic("a", fails), "ValueError"),
        (cannot_be_stored, "NotStorable"),
        (loses_its_transaction, "CommitLost"),
    ],
    ids=["block", "function", "output", "commit"],
)
def test_a_caught_failure_is_history(carrier: Carrier, fails: Callable[[Any], Any], told: str) -> None:
    """It rolls both back, and is the same in the first run and in every replay, as that of a step is."""
    tried.clear()

    def body(ctx: Any) -> list[str]:
        try:
            fails(ctx)
        except StepFailed as failed:
            ctx.atomic("instead", deed, "instead")
            ctx.sleep("a while", 60)
            return [failed.step_id, failed.error_type, failed.message]
        return ["went on"]

    execution = carrier.wake(carrier.run(carrier.flow(body).start()))
    first = execution.output
    carrier.replay(execution)

    assert execution.status == "succeeded", execution.pause_reason
    assert first == execution.output and first[:2] == ["a#1", told]
    assert (deeds(), recorded(execution)) == (["instead"], ["a#1", "instead#1"])
    assert len(tried) <= 1


def test_a_failure_that_ended_the_execution_is_tried_again_by_a_retry(carrier: Carrier) -> None:
    def body(ctx: Any) -> str:
        with ctx.atomic("a"):
            deed("a")
            if not luck:
                raise ValueError("no luck")
        return "went on"

    luck: list[bool] = []
    execution = carrier.run(carrier.flow(body).start())
    luck.append(True)
    retry([execution.pk], actor="ann")

    assert (carrier.run(execution).output, deeds(), recorded(execution)) == ("went on", ["a"], ["a#1"])


def test_an_unstorable_output_rolls_both_back(carrier: Carrier) -> None:
    def body(ctx: Any) -> None:
        with ctx.atomic("a") as a:
            deed("a")
            a.output = object()

    execution = carrier.run(carrier.flow(body).start())

    assert "output of a#1" in execution.last_error and (deeds(), recorded(execution)) == ([], [])


@pytest.mark.parametrize("how", ["close", "commit", "rollback"])
def test_a_block_that_loses_its_transaction_is_told_so(carrier: Carrier, how: str) -> None:
    """Django leaves such a block in silence; then there would be no checkpoint, or no effect."""

    def body(ctx: Any) -> None:
        with ctx.atomic("a"):
            deed("a")
            if how == "close":
                connection.close()
                close_old_connections()
            else:
                with connection.cursor() as cursor:
                    cursor.execute(how.upper())

    execution = carrier.run(carrier.flow(body).start())

    assert execution.status == "failed"
    assert "CommitLost" in execution.last_error and "ctx.atomic()" in execution.last_error
    assert recorded(execution) == []


def test_a_block_of_somebody_who_lost_the_lease_does_nothing(carrier: Carrier) -> None:
    ran: list[str] = []

    def body(ctx: Any) -> None:
        Execution.objects.filter(pk=ctx.execution_id).update(
            status="enqueued", lease_owner=None, lease_token=None, lease_expires_at=None
        )
        with ctx.atomic("a"):
            ran.append("block")
        ran.append("after")

    started = carrier.flow(body).start()
    holding = carrier.claim()
    assert holding is not None
    carrier.start(holding).finish()

    assert ran == [] and holding.lost and status(started) == "enqueued" and carrier.holdings.all() == []


def test_nobody_takes_the_lease_while_the_block_runs(carrier: Carrier) -> None:
    reaped: list[int] = []

    def body(ctx: Any) -> None:
        lapse(started)
        with ctx.atomic("a"):
            deed("a")
            with sessions("reaper") as [reaper]:
                reaped.append(len(reaper.run(reap_lapsed, Execution, using="default")))

    started = carrier.flow(body).start()
    execution = carrier.run(started)

    assert execution.status == "succeeded" and reaped == [0] and deeds() == ["a"]


@pytest.mark.parametrize("body", [begins_with_try, begins_with_try_unnamed], ids=["named", "unnamed"])
def test_a_block_that_could_not_be_left_out_is_refused_in_the_first_run(
    carrier: Carrier, body: Callable[[Any], Any]
) -> None:
    execution = carrier.run(carrier.flow(body).start())

    assert "begins with try" in execution.last_error and "pass a function" in execution.last_error
    assert (deeds(), recorded(execution)) == ([], [])


def test_a_target_that_a_replay_could_not_bind_is_refused(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(to_an_attribute).start())

    assert "bound to more than a name" in execution.last_error and "Write `as step`" in execution.last_error
    assert (deeds(), recorded(execution)) == ([], [])


def test_a_name_beyond_the_first_255_is_bound(carrier: Carrier) -> None:
    """Its instruction has a prefix."""
    names = "; ".join(f"v{n} = {n}" for n in range(300))
    code = (
        f"def body(ctx):\n {names}\n with ctx.atomic('a') as late:\n  late.output = v299\n return late.output"
    )
    space: dict[str, Any] = {}
    exec(code, space)

    first, again, _, _ = replayed(carrier, space["body"])

    assert (first, again) == (299, 299)


def test_a_timeout_that_arrives_while_a_block_is_left_out_leaves_no_tracing(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        with ctx.atomic("a") as a:
            a.output = 1
        return a.output

    def settrace(function: Any) -> None:
        genuine(function)
        if function is not None:
            raise KeyError("arrived")

    flow = carrier.flow(body)
    execution = carrier.run(flow.start())
    genuine, left = sys.settrace, []

    def looked(ctx: Any) -> Any:
        try:
            return body(ctx)
        except KeyError as error:
            left.append(sys.gettrace())
            return str(error)

    carrier.flow(looked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "settrace", settrace)
        again = carrier.replay(execution)

    assert (again.output, left) == ("'arrived'", [None])


def test_recorded_as_what_it_is(carrier: Carrier) -> None:
    carrier.run(carrier.flow(two_in_a_row).start())

    assert list(StepOutput.objects.order_by("ordinal").values_list("step_id", "kind")) == [
        ("a#1", "atomic"),
        ("b#1", "atomic"),
        ("c#1", "step"),
    ]


@pytest.mark.workers
def test_lands_once_under_kills_inside_and_outside_the_block(spawn: Spawn, tmp_path: Path) -> None:
    started = flows.in_a_block.start(folder=str(tmp_path))
    spawn(concurrency=1)

    wait_until(lambda: status(started) == "succeeded", 60, "the end")
    keys = list(Effect.objects.values_list("key", flat=True))
    assert keys == [f"{started.pk}:block", f"{started.pk}:called"]
    started.refresh_from_db()
    assert started.output == 1 and [error["kind"] for error in started.errors] == ["lost"] * 3
