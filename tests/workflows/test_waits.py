"""Waits: resolved once, waking their execution in the same commit, and only when it has enough to go on."""

from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from pgjobs.models import Execution, Wait
from pgjobs.queue import control as jobs
from pgjobs.queue.models import Job
from pgjobs.workflows.waits import children_ended, jobs_ended, lock_executions, resolve, wake
from tests.leases.sessions import sessions, transaction_open
from tests.workflows.rows import execution, gather, job, resolution, status, wait

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)


def end_jobs(*made: Job, as_: str = "succeeded", **columns: Any) -> None:
    Job.objects.filter(pk__in=[j.pk for j in made]).update(status=as_, completed_at=Now(), **columns)
    jobs_ended([j.pk for j in made], "default")


def test_a_wait_is_resolved_once() -> None:
    made = wait(execution())
    assert resolve(made.pk, {"slept": True}, using="default", reason="first")
    assert not resolve(made.pk, {"slept": False}, using="default", reason="second")
    made.refresh_from_db()
    assert (made.resolution, made.reason) == ({"slept": True}, "first") and made.resolved_at is not None


@pytest.mark.parametrize("before", ["enqueued", "running", "paused", "succeeded", "failed", "cancelled"])
def test_only_what_waits_is_woken(before: str) -> None:
    made = wait(execution(before))
    row = Execution.objects.filter(pk=made.execution_id).values().get()
    assert wake([(made.execution_id, made.pk)], using="default") == []
    assert Execution.objects.filter(pk=made.execution_id).values().get() == row


def test_waking_twice_is_waking_once() -> None:
    made = wait(execution())
    pairs = [(made.execution_id, made.pk)]
    assert wake(pairs, using="default") == [made.execution_id]
    assert wake(pairs, using="default") == [] and wake([], using="default") == []


def test_waking_makes_it_claimable_now() -> None:
    late = execution()
    Execution.objects.filter(pk=late.pk).update(available_at="2999-01-01T00:00Z")
    made = wait(late)
    wake([(late.pk, made.pk)], using="default")
    assert Execution.objects.filter(pk=late.pk, status="enqueued", available_at__lte=Now()).exists()


def test_a_wait_of_another_execution_does_not_wake() -> None:
    mine, theirs = wait(execution()), wait(execution())
    assert wake([(mine.execution_id, theirs.pk)], using="default") == []


def test_the_last_of_a_gather_wakes() -> None:
    made = execution()
    work = [job() for _ in range(100)]
    members = gather(made, [j.pk for j in work])

    end_jobs(*work[:99], result={"pages": 3})
    assert status(made) == "waiting"
    end_jobs(work[99], as_="dead", last_error="x" * 5_000)

    assert status(made) == "enqueued"
    assert resolution(members[0]) == {
        "status": "succeeded",
        "result": {"pages": 3},
        "job_id": work[0].pk,
        "error": "",
    }
    assert resolution(members[99])["status"] == "dead" and len(resolution(members[99])["error"]) == 2_000


@pytest.mark.parametrize(
    ("rule", "ends", "woken"),
    [
        ({"min_successful": 2}, ["succeeded"], False),
        ({"min_successful": 2}, ["succeeded", "dead", "succeeded"], True),
        ({"tolerated_failures": 1}, ["dead"], False),
        ({"tolerated_failures": 1}, ["dead", "failed"], True),
        ({"tolerated_failures": 0}, ["cancelled"], True),
        ({"min_successful": 3, "tolerated_failures": 1}, ["succeeded", "succeeded", "dead"], False),
    ],
)
def test_the_rule_of_a_gather_is_met_or_broken_early(
    rule: dict[str, int], ends: list[str], woken: bool
) -> None:
    made = execution()
    work = [job() for _ in range(4)]
    gather(made, [j.pk for j in work], **rule)
    for one, end in zip(work, ends, strict=False):
        assert status(made) == "waiting"
        end_jobs(one, as_=end)
    assert status(made) == ("enqueued" if woken else "waiting")


def test_a_child_that_ended_wakes_its_parent() -> None:
    parent, child = execution(), execution("succeeded", output={"ok": 1})
    awaited = wait(parent, "child", target_id=child.pk)
    same_number = wait(execution(), "job", target_id=child.pk)

    children_ended([child.pk], "default")

    assert resolution(awaited) == {
        "status": "succeeded",
        "result": {"ok": 1},
        "execution_id": child.pk,
        "error": "",
    }
    assert status(parent) == "enqueued"
    assert resolution(same_number) is None


def test_an_end_that_nobody_awaits_is_no_trouble() -> None:
    jobs_ended([job("succeeded").pk, 4711], "default")
    children_ended([execution("failed").pk], "default")
    assert Wait.objects.count() == 0


def test_a_cancelled_job_is_told_in_the_same_transaction() -> None:
    work = job()
    [member] = gather(execution(), [work.pk])
    jobs.cancel([work.pk], actor="ann")
    assert resolution(member)["status"] == "cancelled" and status(member.execution) == "enqueued"


# --- two sessions


@in_sessions
def test_the_last_two_jobs_of_a_gather_end_at_once() -> None:
    """Neither sees the other's end before its commit; the lock on the execution makes one of them the last."""
    made = execution()
    work = [job(), job()]
    members = gather(made, [j.pk for j in work])
    with sessions("one", "two") as (one, two):
        first = transaction_open(one, lambda: end_jobs(work[0]))
        second = two.start(ended_in_transaction, work[1])
        two.wait_blocked()
        assert status(made) == "waiting"
        first.finish()
        second.result(30)
    assert status(made) == "enqueued" and all(resolution(w) for w in members)


def ended_in_transaction(made: Job) -> None:
    with transaction.atomic():
        end_jobs(made)


@in_sessions
def test_ends_of_jobs_of_two_executions_in_opposite_order_do_not_deadlock() -> None:
    a, b = execution(), execution()
    work = [job() for _ in range(4)]
    gather(a, [work[0].pk, work[3].pk])
    gather(b, [work[1].pk, work[2].pk])
    with sessions("one", "two") as (one, two):
        first = transaction_open(one, lambda: end_jobs(work[0], work[1]))
        second = two.start(two_ended, work[2], work[3])
        two.wait_blocked()
        first.finish()
        second.result(30)
    assert [status(a), status(b)] == ["enqueued"] * 2


def two_ended(*made: Job) -> None:
    with transaction.atomic():
        end_jobs(*made)


@in_sessions
def test_executions_are_locked_in_the_order_of_id() -> None:
    low, high = execution(), execution()
    with sessions("one", "two") as (one, two):
        holding = transaction_open(one, lambda: lock_executions([low.pk], using="default"))
        both = two.start(locked, [high.pk, low.pk])
        two.wait_blocked()
        with transaction.atomic():  # the higher one is not taken while the lower is waited for
            assert Execution.objects.select_for_update(nowait=True).get(pk=high.pk) == high
        holding.finish()
        both.result(30)


def locked(ids: list[int]) -> None:
    with transaction.atomic():
        lock_executions(ids, using="default")


@in_sessions
def test_an_end_that_is_rolled_back_wakes_nobody() -> None:
    work = job()
    [member] = gather(execution(), [work.pk])

    def end_and_fail() -> None:
        end_jobs(work)
        raise LookupError

    with sessions("settler") as (one,), pytest.raises(LookupError):
        transaction_open(one, end_and_fail).finish()
    assert resolution(member) is None and status(member.execution) == "waiting"
