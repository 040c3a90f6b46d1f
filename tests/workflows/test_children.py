"""Children: executions that others wait for, on the same queue and slot, without a deadlock of any kind."""

from typing import Any

import pytest
from django.db import transaction

from pgjobs.exceptions import ExecutionFailed, WaitTimeout
from pgjobs.models import Execution, Wait
from pgjobs.workflows.control import cancel
from pgjobs.workflows.lifecycle import finish
from tests.leases.sessions import sessions, transaction_open
from tests.workflows.carrier import Carrier, make_due
from tests.workflows.rows import status, user


def test_a_child_is_waited_for_and_its_output_handed_on(carrier: Carrier) -> None:
    child = carrier.flow(lambda ctx, n: {"n": n + 1}, name="tests.child")
    parent = carrier.flow(lambda ctx: ctx.child(child, n=1))
    ann = user("ann")

    started = parent.start(actor=ann)
    carrier.turn()
    born = Execution.objects.get(workflow_name="tests.child")
    assert (status(started), born.parent_id, born.started_by, born.key) == (
        "waiting",
        started.pk,
        str(ann.pk),
        None,
    )
    assert carrier.run(started).output == {"n": 2}


def test_a_failed_child(carrier: Carrier) -> None:
    seen: list[str] = []

    def boom(ctx: Any) -> None:
        raise ValueError("no luck")

    def body(ctx: Any) -> str:
        try:
            ctx.child(child)
        except ExecutionFailed as error:
            seen.append(f"{error.status}: {error}")
        ctx.sleep("nap", 5)
        return "went on"

    child = carrier.flow(boom, name="tests.child")
    started = carrier.run(carrier.flow(body).start())

    assert carrier.wake(started).output == "went on"
    assert len(seen) == 2 and seen[0] == seen[1]
    assert "failed: " in seen[0] and "ValueError: no luck" in seen[0]


def test_a_cancelled_child(carrier: Carrier) -> None:
    child = carrier.flow(lambda ctx: ctx.sleep("nap", 60), name="tests.child")
    started = carrier.run(carrier.flow(lambda ctx: ctx.child(child)).start())
    cancel([Execution.objects.get(parent=started).pk], actor="ann", reason="not needed")

    assert carrier.run(started).status == "failed" and "ended cancelled" in started.last_error


def test_a_child_that_takes_too_long(carrier: Carrier) -> None:
    def body(ctx: Any) -> str:
        try:
            ctx.child(child, timeout=5)
        except WaitTimeout as error:
            return error.step_id
        return "in time"

    child = carrier.flow(lambda ctx: ctx.sleep("nap", 60), name="tests.child")
    started = carrier.run(carrier.flow(body).start())

    assert carrier.wake(started).output == "tests.child#1"


def test_a_parent_waits_for_the_last_continuation_of_its_child(carrier: Carrier) -> None:
    def count_down(ctx: Any, left: int) -> str:
        if left:
            ctx.sleep("nap", 5)
            ctx.continue_as_new(left=left - 1)
        return "the end"

    child = carrier.flow(count_down, name="tests.child")
    started = carrier.run(carrier.flow(lambda ctx: ctx.child(child, left=2)).start())
    for left in (2, 1):
        newest = Execution.objects.filter(workflow_name="tests.child").latest("id")
        assert newest.input == {"left": left} and newest.parent_id == started.pk
        assert Wait.objects.get(kind="child").target_id == newest.pk
        carrier.wake(newest)

    started.refresh_from_db()
    assert (started.status, started.output) == ("succeeded", "the end")
    assert Execution.objects.count() == 4


def test_cancelling_a_parent_reaches_the_continuation_of_its_child(carrier: Carrier) -> None:
    def twice(ctx: Any, again: bool) -> None:
        if again:
            ctx.continue_as_new(again=False)
        ctx.sleep("nap", 60)

    child = carrier.flow(twice, name="tests.child")
    started = carrier.run(carrier.flow(lambda ctx: ctx.child(child, again=True)).start())
    cancel([started.pk], actor="test")

    statuses = Execution.objects.order_by("id").values_list("status", flat=True)
    assert list(statuses) == ["cancelled", "succeeded", "cancelled"]


def test_children_under_keys_and_names(carrier: Carrier) -> None:
    child = carrier.flow(lambda ctx, n: n, name="tests.child")

    def body(ctx: Any) -> list[int]:
        return [*(ctx.child(child, n=n, key=str(n)) for n in range(3)), ctx.child(child, n=9, name="nine")]

    started = carrier.flow(body).start()
    assert carrier.run(started).output == [0, 1, 2, 9]
    assert [wait.step_id for wait in started.waits.order_by("id")] == [
        *(f"tests.child[{n}]" for n in range(3)),
        "nine#1",
    ]


def test_a_replay_starts_no_second_child(carrier: Carrier) -> None:
    child = carrier.flow(lambda ctx: ctx.sleep("nap", 60), name="tests.child")
    started = carrier.run(carrier.flow(lambda ctx: ctx.child(child)).start())
    for _ in range(2):
        Execution.objects.filter(pk=started.pk).update(status="enqueued")
        assert carrier.run(started).status == "waiting"

    assert Execution.objects.count() == 2


def test_a_child_with_bad_input_is_not_started(carrier: Carrier) -> None:
    child = carrier.flow(lambda ctx, n: n, name="tests.child")
    started = carrier.run(carrier.flow(lambda ctx: ctx.child(child, m=1)).start())

    assert started.status == "failed" and "tests.child" in started.last_error
    assert Execution.objects.count() == 1


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("first", ["child ends", "parent is cancelled"])
def test_the_end_of_a_child_meets_the_cancellation_of_its_parent(carrier: Carrier, first: str) -> None:
    """Both touch both rows. Whoever comes second waits; neither is a deadlock's victim."""
    child = carrier.flow(lambda ctx: "done", name="tests.child")
    started = carrier.flow(lambda ctx: ctx.child(child)).start()
    carrier.turn()
    holding = carrier.claim()
    assert holding is not None and holding.execution.workflow_name == "tests.child"

    def end() -> None:
        finish(holding.lease, '"done"', using="default")

    def stop() -> None:
        assert cancel([started.pk], actor="test")[0].done

    with sessions("first", "second") as [one, two]:
        if first == "child ends":
            open_end = transaction_open(one, end)
            stopping = two.start(stop)
            two.wait_blocked()
            open_end.finish()
            stopping.result(30)
            assert status(started) == "cancelled" and status(holding_row(holding)) == "succeeded"
        else:
            open_cancel = transaction_open(one, stop)
            ending = two.start(end)
            two.wait_blocked()
            open_cancel.finish()
            assert "LeaseLost" in repr(ending.exception(30))
            assert status(started) == status(holding_row(holding)) == "cancelled"


def holding_row(holding: Any) -> Execution:
    return Execution.objects.get(pk=holding.lease.pk)


def test_the_end_of_a_child_locks_the_parent_before_the_child(carrier: Carrier) -> None:
    """Somebody holds the parent (a signal is being sent to it): the child's end must not hold the child meanwhile."""
    child = carrier.flow(lambda ctx: "done", name="tests.child")
    started = carrier.flow(lambda ctx: ctx.child(child)).start()
    carrier.turn()
    holding = carrier.claim()
    assert holding is not None
    with sessions("sender", "ender", "looker") as [sender, ender, looker]:
        sending = transaction_open(sender, lambda: started.signal("go"))
        ending = ender.start(finish, holding.lease, '"done"', using="default")
        ender.wait_blocked()
        free = Execution.objects.select_for_update(nowait=True).filter(pk=holding.lease.pk)

        def lock_child() -> bool:
            with transaction.atomic():
                return bool(list(free))

        assert looker.run(lock_child)
        sending.finish()
        ending.result(30)
    make_due(started)
    assert carrier.run(started).output == "done"
