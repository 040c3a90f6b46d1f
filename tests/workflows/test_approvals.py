"""Approvals: decided once, in time, by those who may, and never on something else than was shown."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from pgjobs.exceptions import NotStorable
from pgjobs.models import OperatorAction, Wait
from pgjobs.workflows.approvals import REJECTED, decide, may_decide, pending_for
from pgjobs.workflows.control import cancel
from pgjobs.workflows.sweep import seconds_until_due, sweep_due
from pgjobs.workflows.waits import lock_executions
from tests.leases.sessions import sessions, transaction_open
from tests.support.waiting import wait_until
from tests.workflows.rows import approval, execution, resolution, status, user, wait

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)
DECIDE = "pgjobs.decide_wait"


@pytest.fixture
def ann() -> User:
    return user("ann", DECIDE)


@pytest.fixture
def bob() -> User:
    return user("bob", DECIDE)


@pytest.mark.parametrize("approved", [True, False])
def test_a_decision_is_recorded_and_wakes_the_execution(ann: User, approved: bool) -> None:
    asked = approval()

    decision = decide(asked.pk, approved=approved, actor=ann, reason="looks fine", data={"limit": 3})

    assert decision.done and decision.message == f"{'approved' if approved else 'rejected'} by ann"
    asked.refresh_from_db()
    assert (asked.approved, asked.decided_by, asked.reason) == (approved, "ann", "looks fine")
    assert asked.resolution == {
        "approved": approved,
        "by": "ann",
        "at": asked.votes[0]["at"],
        "reason": "looks fine",
        "data": {"limit": 3},
        "timeout": False,
    }
    assert asked.votes == [
        {
            "by": "ann",
            "user": str(ann.pk),
            "approved": approved,
            "at": asked.resolution["at"],
            "reason": "looks fine",
            "data": {"limit": 3},
        }
    ]
    assert status(asked.execution) == "enqueued"


def test_a_second_decision_changes_nothing_and_says_who_was_first(ann: User, bob: User) -> None:
    asked = approval()
    decide(asked.pk, approved=False, actor=ann, reason="too risky")
    before = Wait.objects.filter(pk=asked.pk).values().get()

    decision = decide(asked.pk, approved=True, actor=bob)

    assert not decision.done
    assert f"it was rejected before, by ann at {before['resolved_at']:%Y-%m-%d %H:%M:%S}" in decision.message
    assert decision.message.endswith(": too risky")
    assert Wait.objects.filter(pk=asked.pk).values().get() == before


@pytest.mark.parametrize(
    ("on_timeout", "comes_to"), [("reject", "rejected"), ("approve", "approved"), ("raise", "a timeout")]
)
def test_after_the_deadline_nothing_changes_swept_or_not(ann: User, on_timeout: str, comes_to: str) -> None:
    asked = approval(due_in=-1, on_timeout=on_timeout)

    early = decide(asked.pk, approved=True, actor=ann)
    assert not early.done and f"undecided means {comes_to}" in early.message
    assert resolution(asked) is None

    assert sweep_due(using="default") == 1
    swept = Wait.objects.filter(pk=asked.pk).values().get()
    late = decide(asked.pk, approved=True, actor=ann)
    assert not late.done and f"nobody decided in time; it came to {comes_to}" in late.message
    assert Wait.objects.filter(pk=asked.pk).values().get() == swept


def test_a_decision_before_the_deadline_counts(ann: User) -> None:
    assert decide(approval(due_in=60).pk, approved=True, actor=ann).done


def test_a_cancelled_execution_takes_no_decision(ann: User) -> None:
    asked = approval()
    cancel([asked.execution_id], actor="root")

    decision = decide(asked.pk, approved=True, actor=ann)

    assert not decision.done and "was cancelled" in decision.message
    assert status(asked.execution) == "cancelled"


def test_what_is_no_approval_is_not_decided(ann: User) -> None:
    sleep = wait(execution(), "sleep")

    assert "is a sleep" in decide(sleep.pk, approved=True, actor=ann).message
    assert decide(10**9, approved=True, actor=ann).message == f"there is no approval {10**9}"
    assert resolution(sleep) is None


def test_what_was_shown_must_be_what_is_asked(ann: User) -> None:
    asked = approval(context_hash="a" * 64)

    refused = decide(asked.pk, approved=True, actor=ann, shown_hash="b" * 64)
    assert not refused.done and "what you saw is not what is asked" in refused.message
    assert resolution(asked) is None
    assert decide(asked.pk, approved=True, actor=ann, shown_hash="a" * 64).done


@pytest.mark.parametrize("given", [{"reason": "nul \x00"}, {"data": object()}, {"data": float("nan")}])
def test_what_cannot_be_stored_is_refused_before_anything_is_done(ann: User, given: dict[str, Any]) -> None:
    asked = approval()
    with pytest.raises(NotStorable):
        decide(asked.pk, approved=True, actor=ann, **given)
    assert resolution(asked) is None


# --- who may


@pytest.mark.parametrize(
    ("columns", "may"),
    [
        ({}, {"default", "root"}),
        ({"permission": "auth.change_user"}, {"permitted", "root"}),
        ({"groups": ["leads", "owners"]}, {"lead", "root"}),
        ({"users": ["named"]}, {"named", "root"}),
        ({"permission": "auth.change_user", "groups": ["leads"]}, {"permitted", "lead", "root"}),
        (
            {"permission": "auth.change_user", "groups": ["leads"], "users": ["named"]},
            {"permitted", "lead", "named", "root"},
        ),
        ({"permission": "nowhere.no_such"}, {"root"}),
    ],
)
def test_permission_or_group_or_user(columns: dict[str, Any], may: set[str]) -> None:
    people = {
        "default": user("default", DECIDE),
        "permitted": user("permitted", "auth.change_user"),
        "lead": user("lead"),
        "named": user("named"),
        "root": user("root", is_superuser=True),
        "stranger": user("stranger"),
        "gone": user("gone", DECIDE, "auth.change_user", is_active=False),
        "gone root": user("gone root", is_superuser=True, is_active=False),
    }
    people["lead"].groups.add(Group.objects.create(name="leads"))
    people["gone"].groups.add(Group.objects.get(name="leads"))
    if "users" in columns:
        columns = {**columns, "users": [str(people["named"].pk), str(people["gone"].pk)]}
    asked = approval(**columns)

    assert {name for name, person in people.items() if may_decide(person, asked)[0]} == may
    assert {name for name, person in people.items() if asked in pending_for(person)} == may
    for name in people.keys() - may:
        decision = decide(asked.pk, approved=True, actor=people[name])
        assert not decision.done and name in decision.message
    for name in may:
        asked = approval(**columns)
        assert decide(asked.pk, approved=True, actor=people[name]).done


@pytest.mark.parametrize("nobody", [AnonymousUser(), None, "root", User(username="unsaved")])
def test_nobody_in_particular_decides_nothing(nobody: Any) -> None:
    asked = approval()
    assert decide(asked.pk, approved=True, actor=nobody).message == "only a known user can decide"
    assert resolution(asked) is None


def test_the_right_is_read_when_it_is_used(ann: User) -> None:
    asked = approval()
    assert ann.has_perm(DECIDE)  # cached on the instance from here on
    User.objects.get(pk=ann.pk).user_permissions.clear()

    decision = decide(asked.pk, approved=True, actor=ann)

    assert not decision.done and f"it needs the permission {DECIDE}" in decision.message


def test_the_account_is_read_when_it_is_used(ann: User) -> None:
    User.objects.filter(pk=ann.pk).update(is_active=False)
    assert "not active" in decide(approval().pk, approved=True, actor=ann).message


def test_four_eyes_bind_the_starter_even_as_superuser(bob: User) -> None:
    root = user("root", is_superuser=True)
    started = execution(started_by=str(root.pk))
    asked = approval(started, four_eyes=True)

    assert "four eyes" in decide(asked.pk, approved=True, actor=root).message
    assert may_decide(root, asked) == (False, decide(asked.pk, approved=True, actor=root).message)
    assert asked not in pending_for(root) and asked in pending_for(bob)
    assert decide(asked.pk, approved=True, actor=bob).done
    assert decide(approval(started).pk, approved=True, actor=root).done  # without four eyes it may


def test_four_eyes_without_a_starter_say_so(ann: User) -> None:
    asked = approval(four_eyes=True)
    assert may_decide(ann, asked) == (True, "starter unknown: four eyes could not be checked")
    assert may_decide(ann, approval()) == (True, "")
    told = decide(asked.pk, approved=True, actor=ann)
    assert told.done and told.message == "approved by ann (starter unknown: four eyes could not be checked)"


def test_no_reason_is_an_empty_one(ann: User) -> None:
    asked = approval()
    assert decide(asked.pk, approved=False, actor=ann, reason=None).done
    asked.refresh_from_db()
    assert (asked.reason, asked.resolution["reason"], asked.votes[0]["reason"]) == ("", "", "")


def test_a_quorum_takes_so_many_people(ann: User, bob: User) -> None:
    cid = user("cid", DECIDE)
    asked = approval(quorum=2)

    first = decide(asked.pk, approved=True, actor=ann, reason="one")
    assert first.done and first.message == "approval 1 of 2 by ann"
    assert resolution(asked) is None and status(asked.execution) == "waiting"

    again = decide(asked.pk, approved=True, actor=ann)
    assert not again.done and "votes once" in again.message
    assert asked not in pending_for(ann) and asked in pending_for(bob)

    assert decide(asked.pk, approved=True, actor=bob, reason="two").message == "approved by bob"
    asked.refresh_from_db()
    assert [vote["by"] for vote in asked.votes] == ["ann", "bob"]
    assert (asked.approved, asked.decided_by, asked.reason) == (True, "bob", "two")
    assert status(asked.execution) == "enqueued"
    assert not decide(asked.pk, approved=False, actor=cid).done


def test_one_rejection_rejects(ann: User, bob: User) -> None:
    asked = approval(quorum=3)
    decide(asked.pk, approved=True, actor=ann)

    assert decide(asked.pk, approved=False, actor=bob, reason="no").message == "rejected by bob"
    assert resolution(asked)["approved"] is False and status(asked.execution) == "enqueued"


def test_the_inbox_holds_what_is_open_oldest_first(ann: User) -> None:
    first, second = approval(), approval(due_in=60)
    approval(due_in=-1)
    decide(approval().pk, approved=True, actor=ann)
    wait(execution(), "sleep")
    Wait.objects.filter(pk=second.pk).update(created_at=first.created_at - timedelta(hours=1))

    assert list(pending_for(ann)) == [second, first]
    assert list(pending_for(AnonymousUser())) == []


def test_one_select_tells_what_was_rejected_where_and_by_whom(ann: User) -> None:
    refused = approval(execution(key="alert:1"), context={"fix": "restart"})
    decide(refused.pk, approved=False, actor=ann, reason="not at night")
    decide(approval().pk, approved=True, actor=ann)
    approval()
    timed_out = approval(due_in=-1)
    sweep_due(using="default")

    with connection.cursor() as cursor:
        cursor.execute(REJECTED)
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    assert [
        (row["execution_id"], row["key"], row["step_id"], row["decided_by"], row["reason"]) for row in found
    ] == [
        (refused.execution_id, "alert:1", "approval#0", "ann", "not at night"),
        (timed_out.execution_id, None, "approval#0", "", "timed out"),
    ]


def test_the_command_decides_in_a_users_name(ann: User, capsys: pytest.CaptureFixture[str]) -> None:
    asked = approval()

    call_command("pgjobs_approve", str(asked.pk), "--reject", "--user", "ann", "--reason", "no")
    assert capsys.readouterr().out == f"approval {asked.pk}: rejected by ann\n"
    assert (resolution(asked)["approved"], OperatorAction.objects.get().via) == (False, "command")

    with pytest.raises(CommandError, match="it was rejected before, by ann"):
        call_command("pgjobs_approve", str(asked.pk), "--approve", "--user", "ann")
    with pytest.raises(CommandError, match="no user 'eve'"):
        call_command("pgjobs_approve", str(asked.pk), "--approve", "--user", "eve")
    with pytest.raises(CommandError, match="required"):
        call_command("pgjobs_approve", str(asked.pk), "--user", "ann")


# --- two sessions


@in_sessions
@pytest.mark.parametrize("first_approves", [True, False])
def test_two_people_decide_at_once(ann: User, bob: User, first_approves: bool) -> None:
    asked = approval()
    with sessions("ann", "bob") as (one, two):
        first = transaction_open(one, lambda: decide(asked.pk, approved=first_approves, actor=ann))
        second = two.start(decide, asked.pk, approved=not first_approves, actor=bob)
        two.wait_blocked()
        assert first.finish().done
        late = second.result(30)

    assert not late.done and "before, by ann" in late.message
    asked.refresh_from_db()
    assert (asked.approved, asked.decided_by, len(asked.votes)) == (first_approves, "ann", 1)


@in_sessions
def test_the_execution_is_locked_before_the_approval(ann: User) -> None:
    asked = approval()
    with sessions("holder", "ann") as (one, two):
        holding = transaction_open(one, lambda: lock_executions([asked.execution_id], using="default"))
        deciding = two.start(decide, asked.pk, approved=True, actor=ann)
        two.wait_blocked()
        with transaction.atomic():  # free for whoever has the execution
            assert Wait.objects.select_for_update(nowait=True).get(pk=asked.pk) == asked
        holding.finish()
        assert deciding.result(30).done


@in_sessions
def test_two_votes_of_a_quorum_at_once_are_both_kept(ann: User, bob: User) -> None:
    asked = approval(quorum=2)
    with sessions("ann", "bob") as (one, two):
        first = transaction_open(one, lambda: decide(asked.pk, approved=True, actor=ann))
        second = two.start(decide, asked.pk, approved=True, actor=bob)
        two.wait_blocked()
        first.finish()
        assert second.result(30).message == "approved by bob"

    asked.refresh_from_db()
    assert [vote["by"] for vote in asked.votes] == ["ann", "bob"] and asked.approved is True


@in_sessions
def test_one_person_clicking_twice_at_once_votes_once(ann: User) -> None:
    asked = approval(quorum=2)
    with sessions("tab 1", "tab 2") as (one, two):
        first = transaction_open(one, lambda: decide(asked.pk, approved=True, actor=ann))
        second = two.start(decide, asked.pk, approved=True, actor=ann)
        two.wait_blocked()
        first.finish()
        assert "votes once" in second.result(30).message

    assert resolution(asked) is None


@in_sessions
def test_a_decision_that_is_rolled_back_leaves_the_approval_open(ann: User, bob: User) -> None:
    asked = approval()

    def decide_and_fail() -> None:
        decide(asked.pk, approved=True, actor=ann)
        raise LookupError

    with sessions("ann") as (one,), pytest.raises(LookupError):
        transaction_open(one, decide_and_fail).finish()
    assert status(asked.execution) == "waiting"
    assert decide(asked.pk, approved=False, actor=bob).done


@in_sessions
def test_a_decision_in_flight_at_the_deadline_wins_over_the_sweeper(ann: User) -> None:
    asked = approval(due_in=3)
    with sessions("ann") as (one,):
        first = transaction_open(one, lambda: decide(asked.pk, approved=True, actor=ann))
        wait_until(lambda: seconds_until_due(using="default") == 0, message="the deadline")
        assert sweep_due(using="default") == 0  # skips the held execution, waits for nobody
        assert first.finish().done
    assert sweep_due(using="default") == 0
    assert resolution(asked)["by"] == "ann"


@in_sessions
def test_a_sweep_in_flight_wins_over_the_decision(ann: User) -> None:
    asked = approval(due_in=-1, on_timeout="approve")
    with sessions("sweeper", "ann") as (one, two):
        sweep = transaction_open(one, lambda: sweep_due(using="default"))
        late = two.start(decide, asked.pk, approved=False, actor=ann)
        two.wait_blocked()
        assert sweep.finish() == 1
        assert "nobody decided in time; it came to approved" in late.result(30).message

    assert resolution(asked)["timeout"] is True and status(asked.execution) == "enqueued"
