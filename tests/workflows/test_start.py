"""Starting: in the caller's transaction, once for a key, and only what workers know is carried."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from pgjobs import workflow
from pgjobs.exceptions import (
    DuplicateName,
    InvalidHandler,
    InvalidOption,
    NotStorable,
    SignatureMismatch,
    WorkflowError,
)
from pgjobs.models import Execution, Message
from pgjobs.workflows.registry import workflows
from tests.leases.sessions import sessions, transaction_open
from tests.support.own_database import QUEUE, connection
from tests.workflows.carrier import Carrier
from tests.workflows.rows import execution as row
from tests.workflows.rows import user


def echo(ctx: Any, a: int = 1, **more: Any) -> Any:
    return {"a": a, **more}


def test_start_is_part_of_the_callers_transaction(carrier: Carrier) -> None:
    flow = carrier.flow(echo)

    with pytest.raises(RuntimeError), transaction.atomic(using=QUEUE):
        flow.start(a=1)
        raise RuntimeError
    assert not Execution.objects.exists()

    with transaction.atomic(using=QUEUE):
        started = flow.start(a=2, b=[3])
        with sessions("other") as [other]:
            assert other.run(Execution.objects.count) == 0
    assert carrier.run(started).output == {"a": 2, "b": [3]}


def test_a_signal_in_a_rolled_back_transaction_was_never_sent(carrier: Carrier) -> None:
    waiting = carrier.run(carrier.flow(lambda ctx: ctx.wait_signal("go")).start())

    with pytest.raises(RuntimeError), transaction.atomic(using=QUEUE):
        waiting.signal("go", 1)
        assert Execution.objects.get().status == "enqueued"
        raise RuntimeError
    assert not Message.objects.exists() and carrier.run(waiting).status == "waiting"

    waiting.signal("go", 2)
    assert carrier.run(waiting).output == 2


def test_a_key_starts_one_execution(carrier: Carrier) -> None:
    flow = carrier.flow(echo)
    other = carrier.flow(echo, name="tests.other")

    first = flow.start(a=1, key="delivery-1")
    again = flow.start(a=1, key="delivery-1")
    differs = flow.start(a=2, key="delivery-1")

    assert first.pk == again.pk == differs.pk
    assert [first.input_differs, again.input_differs, differs.input_differs] == [False, False, True]
    assert other.start(a=1, key="delivery-1").pk != first.pk, "a key is the workflow's own"
    assert flow.start(a=1, key="delivery-2").pk != first.pk
    assert carrier.run(first).output == {"a": 1}
    assert flow.start(a=1, key="delivery-1").status == "succeeded", "it stays taken after the end"


@pytest.mark.parametrize("key", ["", "  ", "x" * 256, 5, "a\x00"])
def test_a_key_that_is_none_is_refused_by_its_name(carrier: Carrier, key: Any) -> None:
    with pytest.raises((InvalidOption, NotStorable), match=r"^key"):
        carrier.flow(echo).start(key=key)
    assert not Execution.objects.exists()


def test_two_starts_of_a_key_at_once(carrier: Carrier) -> None:
    flow = carrier.flow(echo)
    with sessions("first", "second") as [one, two]:
        open_start = transaction_open(one, lambda: flow.start(key="k"))
        second = two.start(flow.start, key="k")
        two.wait_blocked()
        first = open_start.finish()
        assert second.result(30).pk == first.pk
    assert Execution.objects.count() == 1


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"a": object()}, NotStorable, "input.a"),
        ({"b": float("nan")}, NotStorable, "input.b"),
        ({"key": ""}, InvalidOption, "key"),
        ({"key": "x" * 300}, InvalidOption, "255"),
        ({"run_after": timedelta(seconds=-1)}, InvalidOption, "run_after"),
        ({"run_after": timezone.now().replace(tzinfo=None)}, InvalidOption, "naive"),
    ],
)
def test_bad_input_starts_nothing(
    carrier: Carrier, arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        carrier.flow(echo).start(**arguments)
    assert not Execution.objects.exists()


def test_a_call_that_does_not_fit_is_refused(carrier: Carrier) -> None:
    flow = carrier.flow(lambda ctx, a: a)
    with pytest.raises(SignatureMismatch, match="missing a required argument: 'a'"):
        flow.start()
    with pytest.raises(SignatureMismatch, match="unexpected keyword argument 'b'"):
        flow.start(1, b=2)
    assert flow.start(7).input == {"a": 7}


def test_later(carrier: Carrier) -> None:
    started = carrier.flow(echo).start(run_after=timedelta(hours=1))

    assert carrier.run(started).status == "enqueued"
    assert timedelta(minutes=59) < started.available_at - started.created_at < timedelta(minutes=61)


def test_who_and_about_what(carrier: Carrier) -> None:
    ann = user("ann")
    started = carrier.flow(echo).start(actor=ann, subject=ann)
    started = Execution.objects.get(pk=started.pk)

    assert (started.started_by, started.subject) == (str(ann.pk), ann)


def test_astart(carrier: Carrier) -> None:
    flow = carrier.flow(echo)

    async def start() -> Execution:
        return await flow.astart(a=5, key="async")

    # The row is written on the thread of sync_to_async, whose connection must not outlive the test.
    from asgiref.sync import async_to_sync

    started = async_to_sync(start)()
    assert carrier.run(started).output == {"a": 5}


def test_executions_of_unknown_workflows_wait(carrier: Carrier) -> None:
    unknown = row("enqueued", workflow_name="tests.of_another_deploy")
    known = carrier.flow(echo).start()

    assert carrier.run(known).status == "succeeded"
    unknown.refresh_from_db()
    assert (unknown.status, unknown.attempt_count, unknown.crash_count) == ("enqueued", 0, 0)

    carrier.flow(echo, name="tests.of_another_deploy")
    assert carrier.run(unknown).status == "succeeded"


def test_a_row_written_by_hand_is_carried(carrier: Carrier) -> None:

    carrier.flow(echo)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_execution (workflow_name, input) VALUES ('tests.flow', '{\"a\": 9}')"
        )

    assert carrier.run(Execution.objects.get()).output == {"a": 9}


@pytest.mark.parametrize("input", ["[]", "7", '{"b": 1}'])
def test_an_input_that_does_not_fit_the_body_fails_the_execution(carrier: Carrier, input: str) -> None:
    import json

    carrier.flow(lambda ctx, a: a)
    started = row("enqueued", input=json.loads(input))

    assert carrier.run(started).status == "failed" and started.last_error


def test_a_name_is_declared_once() -> None:
    def elsewhere(ctx: Any) -> None: ...

    workflow(name="tests.declared once")(echo)
    try:
        workflow(name="tests.declared once")(echo)  # the same function again: a reloaded module
        with pytest.raises(
            DuplicateName, match=r"(?s)workflow 'tests.declared once'.*test_start.py:.*test_start.py:"
        ):
            workflow(name="tests.declared once")(elsewhere)
    finally:
        workflows._by_name.pop("tests.declared once")


def generator(ctx: Any) -> Any:
    yield ctx


def no_context() -> None: ...


def positional(ctx: Any, a: int, /) -> None: ...


def star(ctx: Any, *rest: int) -> None: ...


def own_name(ctx: Any, key: str) -> None: ...


@pytest.mark.parametrize("function", [generator, no_context, positional, star, own_name, int, "text"])
def test_what_cannot_be_a_workflow_is_refused_at_import(function: Any) -> None:
    with pytest.raises(InvalidHandler):
        workflow(name="tests.refused")(function)
    assert "tests.refused" not in workflows.names()


@pytest.mark.parametrize(
    "options", [{"version": -1}, {"version": True}, {"on_divergence": "stop"}, {"max_crashes": 0}]
)
def test_senseless_options_are_refused_at_import(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        workflow(name="tests.refused", **options)


def test_the_body_is_still_a_function() -> None:
    called = workflow(name="tests.callable")(echo)
    try:
        assert called("ctx", a=3) == {"a": 3} and called.workflow_name == "tests.callable"
    finally:
        workflows._by_name.pop("tests.callable")


def test_a_signal_to_what_has_ended_is_told_so(carrier: Carrier) -> None:
    ended = carrier.run(carrier.flow(echo).start())

    with pytest.raises(WorkflowError, match="has ended"):
        ended.signal("go")
    assert not Message.objects.exists()


def test_a_start_in_the_event_loop_is_told_to_be_astart(carrier: Carrier) -> None:
    from django.core.exceptions import SynchronousOnlyOperation

    flow = carrier.flow(echo)

    async def start() -> None:
        with pytest.raises(SynchronousOnlyOperation):
            flow.start()

    asyncio.run(start())
