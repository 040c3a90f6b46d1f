"""Cancel, resume, retry, pause and fork: what each may do, what it leaves behind, and in what order it locks."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from pgjobs.exceptions import LeaseLost, WorkflowError
from pgjobs.leases.fence import leave
from pgjobs.leases.states import Lease
from pgjobs.models import Execution, Job, Message
from pgjobs.queue import control as jobs
from pgjobs.queue.control import VerbOutcome
from pgjobs.queue.outcomes import Problem
from pgjobs.workflows import lifecycle
from pgjobs.workflows.control import cancel, pause, resume, retry
from pgjobs.workflows.messages import send
from pgjobs.workflows.states import ExecutionStatus, sources
from pgjobs.workflows.waits import children_ended, lock_executions
from tests.leases.sessions import Paused, sessions, transaction_open
from tests.workflows.rows import approval, execution, gather, job, resolution, status, step, user, wait

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)

FROM = {
    cancel: sources("cancel"),
    resume: {ExecutionStatus.PAUSED},
    retry: {ExecutionStatus.FAILED},
    pause: {ExecutionStatus.ENQUEUED, ExecutionStatus.WAITING},
}
TO = {cancel: "cancelled", resume: "enqueued", retry: "enqueued", pause: "paused"}
Verb = Callable[..., Any]


@pytest.mark.parametrize("before", ExecutionStatus.values)
@pytest.mark.parametrize("verb", FROM, ids=lambda verb: verb.__name__)
def test_each_verb_from_each_state(verb: Verb, before: str) -> None:
    made = execution(before, crash_count=2, pause_reason="crashed")
    row = Execution.objects.filter(pk=made.pk).values().get()

    [outcome] = verb([made.pk], actor="ann", reason="because")

    allowed = before in FROM[verb]
    assert outcome.done is allowed and outcome.status == (TO[verb] if allowed else before)
    if not allowed:
        assert f"it is {before}; only" in outcome.message
        assert Execution.objects.filter(pk=made.pk).values().get() == row
        return
    made.refresh_from_db()
    assert made.status == TO[verb] and made.note.endswith("by ann: because")
    assert (made.lease_owner, made.lease_token, made.lease_expires_at) == (None, None, None)
    assert (made.completed_at is not None) is (verb is cancel)
    if TO[verb] == "enqueued":
        assert (made.crash_count, made.pause_reason) == (0, "")
    if verb is pause:
        assert made.pause_reason == "paused by ann: because"


@pytest.mark.parametrize("verb", FROM, ids=lambda verb: verb.__name__)
def test_ids_that_are_not_there_and_ids_given_twice(verb: Verb) -> None:
    made = execution("waiting")
    outcomes = verb([10**25, made.pk, made.pk, -1], actor="ann")

    assert [outcome.id for outcome in outcomes] == [-1, made.pk, 10**25]
    assert [outcome.message for outcome in outcomes[::2]] == ["there is no such execution"] * 2
    assert verb([], actor="ann") == []


def test_a_reason_of_any_text_does_not_stop_a_verb() -> None:
    made = execution()
    assert cancel([made.pk], actor=user("ann"), reason="nul \x00 " + "x" * 5_000)[0].done
    made.refresh_from_db()
    assert made.note.startswith("cancelled by ann: nul \ufffd") and len(made.note) <= 1_000


def test_the_holder_of_a_cancelled_execution_can_change_nothing() -> None:
    made = execution("running")
    lease = Lease(made.pk, made.lease_token, made.lease_owner, "execution")
    cancel([made.pk], actor="ann")

    with pytest.raises(LeaseLost):
        leave(Execution, lease, to="succeeded", using="default")
    assert status(made) == "cancelled"


def test_cancel_closes_waits_and_stops_what_has_not_begun() -> None:
    made = execution()
    old = wait(made, "sleep")
    idle, busy, done, others = job(), job("running"), job("succeeded"), job()
    members = gather(made, [idle.pk, busy.pk, done.pk])
    asked = approval(execution())

    cancel([made.pk], actor="ann", reason="wrong alert")

    assert [resolution(w) for w in [old, *members]] == [{"cancelled": True}] * 4
    assert [status(j) for j in (idle, busy, done, others)] == ["cancelled", "running", "succeeded", "pending"]
    assert Job.objects.get(pk=idle.pk).note == "its execution was cancelled by ann: wrong alert"
    assert Job.objects.get(pk=idle.pk).completed_at is not None
    assert resolution(asked) is None and status(asked.execution) == "waiting"


def test_cancel_spares_a_job_that_another_execution_awaits_too() -> None:
    shared = job()
    made, fellow = execution(), execution()
    gather(made, [shared.pk])
    gather(fellow, [shared.pk])

    cancel([made.pk], actor="ann")
    assert status(shared) == "pending"
    cancel([fellow.pk], actor="ann")
    assert status(shared) == "cancelled"


def test_cancel_takes_the_live_descendants_along_and_tells_the_parent() -> None:
    parent = execution()
    made = execution(parent=parent)
    awaited = wait(parent, "child", target_id=made.pk)
    child = execution("enqueued", parent=made)
    grandchild = execution("running", parent=child)
    ended = execution("succeeded", parent=made)
    detached = execution(parent=ended)
    inner = wait(made, "child", target_id=child.pk)

    assert [outcome.id for outcome in cancel([made.pk], actor="ann")] == [made.pk]

    assert [status(e) for e in (made, child, grandchild, ended, detached)] == [
        *["cancelled"] * 3, "succeeded", "waiting"
    ]  # fmt: skip
    assert resolution(inner) == {"cancelled": True}
    assert resolution(awaited) == {
        "status": "cancelled",
        "result": None,
        "execution_id": made.pk,
        "error": "",
    }
    assert status(parent) == "enqueued"


def test_cancel_leaves_the_ended_alone_with_their_children() -> None:
    ended = execution("succeeded")
    child = execution(parent=ended)
    assert not cancel([ended.pk], actor="ann")[0].done
    assert status(child) == "waiting"


def test_a_retry_forgets_the_end_and_keeps_the_history() -> None:
    made = execution("failed", last_error="ValueError: no", errors=[{"attempt": 1}])
    step(made, 0)
    retry([made.pk], actor="ann")
    made.refresh_from_db()
    assert (made.status, made.completed_at) == ("enqueued", None)
    assert (made.last_error, made.errors, made.steps.count()) == ("ValueError: no", [{"attempt": 1}], 1)


# --- commands


def test_the_commands_call_the_verbs_and_tell_of_each_id(capsys: pytest.CaptureFixture[str]) -> None:
    user("ann")
    made, work = execution(), job(awaited=False)
    call_command(
        "pgjobs_cancel",
        "--execution",
        str(made.pk),
        "--job",
        str(work.pk),
        "--user",
        "ann",
        "--reason",
        "wrong",
    )
    assert capsys.readouterr().out.splitlines() == [
        f"job {work.pk}: cancelled (was pending)",
        f"execution {made.pk}: cancelled (was waiting)",
    ]
    made.refresh_from_db()
    assert made.note == "cancelled by ann: wrong"

    call_command("pgjobs_retry", "--job", str(work.pk))
    assert status(work) == "pending"
    paused = execution("paused")
    call_command("pgjobs_resume", "--execution", str(paused.pk))
    assert status(paused) == "enqueued"


def test_a_command_that_leaves_something_as_it_is_ends_with_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    paused = execution("paused")
    with pytest.raises(CommandError, match="Left as before: 1 of 2"):
        call_command("pgjobs_resume", "--execution", str(paused.pk), "4711")
    assert "execution 4711: there is no such execution" in capsys.readouterr().out
    assert status(paused) == "enqueued"
    with pytest.raises(CommandError, match="Give --job ID or --execution ID"):
        call_command("pgjobs_cancel")


# --- two sessions


@in_sessions
def test_cancel_does_not_wait_for_a_job_whose_end_waits_for_the_execution() -> None:
    made = execution()
    work, idle = job(), job()
    members = gather(made, [work.pk, idle.pk])
    with sessions("settler", "canceller") as (one, two):
        settling = transaction_open(one, lambda: lock_job(work.pk))
        assert two.run(cancel, [made.pk], actor="ann")[0].done
        settling.finish()
    assert [resolution(member) for member in members] == [{"cancelled": True}] * 2
    assert [status(work), status(idle)] == ["pending", "cancelled"]


def lock_job(pk: int) -> None:
    list(Job.objects.select_for_update().filter(pk=pk))


def settle_and_tell(pk: int) -> None:
    jobs.cancel([pk], actor="settler")


@in_sessions
def test_cancel_while_the_last_job_is_being_settled() -> None:
    """Settlement: job, then execution. Cancellation: execution, then only jobs that nobody holds."""
    made = execution()
    work, idle = job("running"), job()
    gather(made, [work.pk, idle.pk])
    with sessions("settler", "canceller") as (one, two):
        settling = transaction_open(one, lambda: settle_and_tell(work.pk))  # holds job and execution
        cancelling = two.start(cancel, [made.pk], actor="ann")
        two.wait_blocked()
        settling.finish()
        assert cancelling.result(30)[0].done
    assert status(made) == "cancelled" and status(idle) == "cancelled"


@in_sessions
def test_two_cancellations_of_one_family_from_both_ends() -> None:
    parent = execution()
    child = execution(parent=parent)
    awaited = wait(parent, "child", target_id=child.pk)
    with sessions("above", "below") as (one, two):
        holding = transaction_open(one, lambda: lock_executions([parent.pk], using="default"))
        below = two.start(cancel, [child.pk], actor="ann")
        two.wait_blocked()  # for the parent, which it must tell, and so without a lock on the child
        with sessions("probe") as (probe,):
            assert probe.run(can_lock, child.pk)
        holding.finish()
        assert below.result(30)[0].done
        assert one.run(cancel, [parent.pk], actor="bob")[0].done
    assert [status(parent), status(child)] == ["cancelled", "cancelled"]
    assert resolution(awaited)["status"] == "cancelled"


def can_lock(pk: int) -> bool:
    with transaction.atomic():
        return Execution.objects.select_for_update(skip_locked=True).filter(pk=pk).exists()


@in_sessions
@pytest.mark.parametrize("end", ["finish", "fail"])
@pytest.mark.usefixtures("patient")
def test_a_child_ends_while_its_parent_is_being_cancelled(end: str) -> None:
    """The child's end tells the parent, the parent's cancellation reaches for the child: both lock the parent first."""
    parent = execution()
    child = execution("running", parent=parent)
    wait(parent, "child", target_id=child.pk)
    lease = Lease(child.pk, child.lease_token, child.lease_owner, "execution")

    def cancel_slowly(pause: Callable[[], None]) -> list[VerbOutcome]:
        with transaction.atomic():
            lock_executions([parent.pk], using="default")
            pause()
            return cancel([parent.pk], actor="ann")

    def end_child() -> None:
        if end == "finish":
            lifecycle.finish(lease, "4", using="default")
        else:
            lifecycle.fail(lease, Problem("error", "ValueError", "no", ""), using="default")

    with sessions("canceller", "worker") as (one, two):
        cancelling = Paused(one, cancel_slowly)
        ending = two.start(end_child)
        two.wait_blocked()
        assert cancelling.finish()[0].done
        with pytest.raises(LeaseLost):
            ending.result(30)
    assert [status(parent), status(child)] == ["cancelled", "cancelled"]


@in_sessions
def test_a_child_started_while_its_parent_is_being_cancelled_is_cancelled_too() -> None:
    parent = execution("running")

    def start_child() -> None:
        lock_executions([parent.pk], using="default")
        execution("enqueued", parent=parent)

    with sessions("worker", "canceller") as (one, two):
        starting = transaction_open(one, start_child)
        cancelling = two.start(cancel, [parent.pk], actor="ann")
        two.wait_blocked()
        starting.finish()
        assert cancelling.result(30)[0].done
    assert set(Execution.objects.values_list("status", flat=True)) == {"cancelled"}


@in_sessions
def test_a_signal_against_a_cancellation() -> None:
    made = execution()
    wait(made, "signal", name="paid")
    with sessions("canceller", "sender") as (one, two):
        cancelling = transaction_open(one, lambda: cancel([made.pk], actor="ann"))
        sending = two.start(send, made.pk, "paid")
        two.wait_blocked()
        cancelling.finish()
        with pytest.raises(WorkflowError, match="has ended"):
            sending.result(30)
    assert Message.objects.count() == 0


@in_sessions
def test_a_child_that_ends_first_keeps_its_end() -> None:
    parent = execution()
    child = execution("running", parent=parent)
    awaited = wait(parent, "child", target_id=child.pk)
    lease = Lease(child.pk, child.lease_token, child.lease_owner, "execution")

    def finish() -> None:
        lock_executions([parent.pk, child.pk], using="default")
        leave(Execution, lease, to="succeeded", using="default", output=4)
        children_ended([child.pk], "default")

    with sessions("worker", "canceller") as (one, two):
        ending = transaction_open(one, finish)
        cancelling = two.start(cancel, [child.pk], actor="ann")
        two.wait_blocked()
        ending.finish()
        assert not cancelling.result(30)[0].done
    assert status(child) == "succeeded" and resolution(awaited)["result"] == 4
