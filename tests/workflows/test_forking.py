"""Fork: a new execution from another's history, up to a call of choice."""

from typing import Any

import pytest

from pgjobs.exceptions import InvalidOption, WorkflowError
from pgjobs.models import Execution, Message, StepOutput
from pgjobs.workflows.control import cancel
from pgjobs.workflows.forking import fork
from pgjobs.workflows.waits import jobs_ended
from tests.workflows.carrier import Carrier
from tests.workflows.rows import approval, execution, gather, job, step, user

pytestmark = pytest.mark.django_db


def test_a_fork_shares_the_history_before_the_call() -> None:
    ann = user("ann")
    made = execution("succeeded", key="k", version=3, queue="q", priority=7, input={"a": 1}, output=5)
    step(made, 0, output={"cause": "disk"}, output_bytes=16, seconds=1.5, arguments_hash="abc")
    asked = approval(
        made, ordinal=1, approved=True, resolution={"approved": True}, resolved_at=made.created_at
    )
    step(made, 2)
    Message.objects.create(execution=made, name="paid")

    new = fork(made.pk, from_ordinal=2, actor=ann, reason="try again")

    assert new.pk != made.pk and (new.status, new.key, new.parent_id, new.output) == (
        "enqueued",
        None,
        None,
        None,
    )
    assert (new.version, new.queue, new.priority, new.input) == (3, "q", 7, {"a": 1})
    assert new.started_by == str(ann.pk)
    assert new.note == f"forked from execution {made.pk} at call 2 by ann: try again"
    ignored = ("id", "execution_id", "arguments_hash")
    for rows in ("steps", "waits"):
        ours, theirs = (
            [
                {k: v for k, v in row.items() if k not in ignored}
                for row in getattr(e, rows).order_by("id").values()
            ]
            for e in (new, made)
        )
        assert ours == [row for row in theirs if row["ordinal"] < 2] != []
    assert new.messages.count() == 0
    made.refresh_from_db()
    assert (made.status, made.key, made.steps.count(), asked.execution_id) == ("succeeded", "k", 2, made.pk)


def test_a_fork_by_code_keeps_the_starter() -> None:
    made = execution("failed", started_by="7")
    assert fork(made.pk, from_ordinal=0, actor="the command line").started_by == "7"


@pytest.mark.parametrize("ordinal", [-1, 3, True, "1", 1.0, None])
def test_a_fork_beyond_the_history_is_refused(ordinal: Any) -> None:
    made = execution("failed")
    step(made, 0)
    step(made, 1)
    with pytest.raises(InvalidOption, match="from 0 to 2; its history ends there"):
        fork(made.pk, from_ordinal=ordinal, actor="ann")
    assert Execution.objects.count() == 1
    assert fork(made.pk, from_ordinal=2, actor="ann").steps.count() == 2


def test_a_fork_does_not_copy_what_is_still_waited_for() -> None:
    made = execution()
    step(made, 0)
    approval(made, ordinal=1)
    with pytest.raises(InvalidOption, match="from 0 to 1; it still waits there"):
        fork(made.pk, from_ordinal=2, actor="ann")
    assert fork(made.pk, from_ordinal=1, actor="ann").waits.count() == 0


def test_a_fork_of_a_cancelled_execution_asks_again() -> None:
    asked = approval(execution())
    cancel([asked.execution_id], actor="ann")
    with pytest.raises(InvalidOption, match="from 0 to 0"):
        fork(asked.execution_id, from_ordinal=1, actor="ann")
    assert fork(asked.execution_id, from_ordinal=0, actor="ann").waits.count() == 0


def test_a_gather_that_went_on_without_some_is_copied_whole_and_both_hear_of_the_rest() -> None:
    made = execution()
    late = job("succeeded")
    members = gather(made, [job("succeeded").pk, late.pk], min_successful=1)
    jobs_ended([members[0].target_id], "default")
    step(made, 1)

    new = fork(made.pk, from_ordinal=1, actor="ann")
    assert sorted(w.resolved_at is None for w in new.waits.all()) == [False, True]
    jobs_ended([late.pk], "default")
    assert not new.waits.filter(resolved_at=None) and not made.waits.filter(resolved_at=None)


def test_a_gather_whose_outcome_is_recorded_is_waited_for_no_more() -> None:
    made = execution("failed")
    gather(made, [job("running").pk], min_successful=0)
    StepOutput.objects.create(execution=made, step_id="gather#1", kind="step", ordinal=0, output={})
    assert fork(made.pk, from_ordinal=1, actor="ann").steps.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_fork_replays_what_was_drawn_before_it(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        drawn = [str(ctx.uuid()), ctx.random.random(), ctx.now(), ctx.execution_id]
        got = ctx.step(lambda *values: values, *drawn, name="first")
        ctx.sleep("nap", 5)
        drawn.append(ctx.random.random())
        return [got, ctx.step(lambda *values: values, *drawn, name="second")]

    made = carrier.run(carrier.flow(body).start())
    carrier.wake(made)
    assert made.status == "succeeded", made.last_error

    new = fork(made.pk, from_ordinal=2, actor="ann")
    assert carrier.run(new).status == "succeeded", new.pause_reason + new.last_error
    first, second = new.output
    assert first == made.output[0]
    assert second[:3] == first[:3] and second[3] == new.pk and second[4] == made.output[1][4]
    assert carrier.replay(new).output == [first, second]


def test_a_fork_of_a_fork_has_the_first_origin() -> None:
    made = execution("succeeded")
    step(made, 0)
    new = fork(fork(made.pk, from_ordinal=1, actor="ann").pk, from_ordinal=1, actor="ann")
    assert (new.origin_id, new.origin_at) == (made.pk, made.created_at)


def test_there_must_be_something_to_fork() -> None:
    with pytest.raises(WorkflowError, match="no execution 4711"):
        fork(4711, from_ordinal=0, actor="ann")
