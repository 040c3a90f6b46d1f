"""What a person saw counts: a verb on something that has moved meanwhile does nothing, and says how it stands."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import transaction

from pgjobs.exceptions import InvalidOption, WorkflowError
from pgjobs.models import Execution, Message, OperatorAction
from pgjobs.workflows import verbs
from pgjobs.workflows.approvals import decide
from pgjobs.workflows.messages import send
from tests.leases.sessions import sessions, transaction_open
from tests.workflows.rows import approval, execution, gather, job, status, step, user, wait

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)

Verb = Callable[..., list[Any]]
FROM = {
    verbs.cancel: "waiting",
    verbs.pause: "waiting",
    verbs.resume: "paused",
    verbs.retry_from: "failed",
    verbs.fork: "failed",
    verbs.signal: "waiting",
}


def called(verb: Verb, ids: list[int], expected: Any) -> list[Any]:
    named = {"name": "go"} if verb is verbs.signal else {}
    return verb(ids, **named, actor="ann", expected=expected)


@pytest.mark.parametrize("verb", FROM, ids=lambda verb: verb.__name__)
@pytest.mark.parametrize("seen", [("running", 3), ("{before}", 2)], ids=["another status", "another turn"])
def test_what_was_seen_otherwise_is_left(verb: Verb, seen: tuple[str, int]) -> None:
    before = FROM[verb]
    seen = (seen[0].format(before=before), seen[1])
    made, other = execution(before, attempt_count=3), execution(before, attempt_count=3)
    row = Execution.objects.filter(pk=made.pk).values().get()

    left, done = called(verb, [made.pk, other.pk], {made.pk: seen, other.pk: (before, 3)})

    assert (left.done, left.status, done.done) == (False, before, True)
    saw = seen[0] if seen[0] != before else f"{before} (turn {seen[1]})"
    assert left.result == "conflict"
    assert f"it was {saw} when you looked; it is now {before} (turn 3)" in left.message
    assert Execution.objects.filter(pk=made.pk).values().get() == row
    assert not Message.objects.filter(execution=made)


@pytest.mark.parametrize("verb", FROM, ids=lambda verb: verb.__name__)
def test_ids_that_are_not_there(verb: Verb) -> None:
    assert [outcome.done for outcome in called(verb, [4711, 10**25], {4711: ("waiting", 1)})] == [False] * 2


def test_a_cancellation_that_no_longer_fits_leaves_the_family_alone() -> None:
    made = execution(attempt_count=2)
    child = execution(parent=made)
    open_wait = wait(made, "child", target_id=child.pk)

    assert not verbs.cancel([made.pk], actor="ann", expected={made.pk: ("waiting", 1)})[0].done

    open_wait.refresh_from_db()
    assert [status(made), status(child), open_wait.resolved_at] == ["waiting", "waiting", None]


def test_a_descendant_goes_with_its_parent_however_it_was_seen() -> None:
    made = execution()
    child = execution(parent=made)

    outcomes = verbs.cancel([made.pk, child.pk], actor="ann", expected={child.pk: ("running", 9)})

    assert [outcome.done for outcome in outcomes] == [True, True]
    assert [status(made), status(child)] == ["cancelled", "cancelled"]


def test_a_retry_that_no_longer_fits_leaves_the_jobs_alone() -> None:
    made = execution("failed", last_error="JobsFailed: 'gather#1'")
    work = job("dead")
    gather(made, [work.pk])

    assert not verbs.retry([made.pk], actor="ann", expected={made.pk: ("failed", 7)})[0].done
    assert status(work) == "dead"


@in_sessions
def test_what_moves_while_a_verb_waits_for_it_is_judged_as_it_then_stands() -> None:
    made = execution("paused")
    with sessions("one", "two") as (one, two):
        first = transaction_open(one, lambda: verbs.resume([made.pk], actor="ann"))
        second = two.start(verbs.resume, [made.pk], actor="bob", expected={made.pk: ("paused", 0)})
        two.wait_blocked()
        first.finish()
        [told] = second.result(30)
    assert not told.done and "was paused when you looked; it is now enqueued" in told.message
    made.refresh_from_db()
    assert made.note == "resumed by ann"


def test_a_decision_on_what_has_moved_is_told_so() -> None:
    ann = user("ann", "pgjobs.decide_wait")
    asked = approval(execution(attempt_count=2))

    told = decide(asked.pk, approved=True, actor=ann, expected=("waiting", 1))
    assert not told.done and "it is now waiting (turn 2)" in told.message
    assert decide(asked.pk, approved=True, actor=ann, expected=("waiting", 2)).done


def test_a_single_signal_and_a_single_fork_raise() -> None:
    made = execution("failed", attempt_count=2)
    with pytest.raises(WorkflowError, match=r"it is now failed .turn 2.\. Nothing was forked"):
        verbs.forking.fork(made.pk, from_ordinal=0, actor="ann", expected=("failed", 1))
    waiting = execution(attempt_count=2)
    with pytest.raises(WorkflowError, match="it is now waiting"):
        send(waiting.pk, "go", expected=("waiting", 1))


def test_a_signal_to_several_answers_for_each() -> None:
    made, ended = execution(), execution("failed")
    outcomes = verbs.signal([made.pk, ended.pk], "go", {"n": 1}, actor="ann")

    assert [outcome.done for outcome in outcomes] == [True, False] and "has ended" in outcomes[1].message
    assert made.messages.get().payload == {"n": 1}
    with pytest.raises(InvalidOption, match="1 to 200 characters"):
        verbs.signal([made.pk], "", actor="ann")


@pytest.mark.parametrize("verb", FROM, ids=lambda verb: verb.__name__)
def test_each_operation_is_one_row_of_the_audit(verb: Verb) -> None:
    before = FROM[verb]
    made = [execution(before, attempt_count=1) for _ in range(3)]

    ids = [*(one.pk for one in made), 10**6]
    called(verb, ids, {made[0].pk: (before, 7)})

    row = OperatorAction.objects.get()
    name = "retry" if verb is verbs.retry_from else verb.__name__
    assert (row.verb, row.target_kind, row.actor, row.target_ids) == (name, "execution", "ann", ids)
    assert (row.done, row.skipped, row.refused) == (2, 1, 1)
    made[1].refresh_from_db()
    called(verb, [made[1].pk], None)
    assert OperatorAction.objects.count() == 2


def test_an_operation_and_its_row_of_the_audit_are_one_commit() -> None:
    made = execution()
    with pytest.raises(KeyError), transaction.atomic():
        verbs.cancel([made.pk], actor="ann")
        raise KeyError
    assert status(made) == "waiting" and not OperatorAction.objects.exists()
    verbs.cancel([made.pk], actor="ann", audited=False)
    assert status(made) == "cancelled" and not OperatorAction.objects.exists()


def test_decisions_are_in_the_audit_refused_ones_too() -> None:
    ann, asked = user("ann", "pgjobs.decide_wait"), approval()
    for actor in (user("bob"), ann):
        decide(asked.pk, approved=True, actor=actor, reason="fine")
    refused, done = OperatorAction.objects.order_by("id")
    assert (refused.target_kind, refused.target_ids, refused.refused) == ("approval", [asked.pk], 1)
    assert "may not decide" in refused.details["told"]
    assert (done.user_id, done.done, done.reason) == (str(ann.pk), 1, "fine")


# --- fork by step


def test_a_fork_from_a_step_by_its_name() -> None:
    made = execution("failed")
    for ordinal, step_id in enumerate(["charge#1", "charge#2", "page[a]", "ship#1"]):
        step(made, ordinal).__class__.objects.filter(execution=made, ordinal=ordinal).update(step_id=step_id)

    places = {
        given: verbs.forking.place_of(made.pk, given, using="default")
        for given in ("ship", "charge#2", "page", "page[a]", "3", 1, None)
    }
    assert places == {"ship": 3, "charge#2": 1, "page": 2, "page[a]": 2, "3": 3, 1: 1, None: 4}
    [several, unknown, misspelt, none] = [
        verbs.fork([pk], from_step=given, actor="ann")[0]
        for pk, given in (
            (made.pk, "charge"),
            (made.pk, "cha%"),
            (made.pk, "shipp"),
            (execution("failed").pk, "ship"),
        )
    ]
    assert not several.done and "give one of 'charge#1', 'charge#2'" in several.message
    calls = f"execution {made.pk}: its calls are 'charge#1', 'charge#2', 'page[a]', 'ship#1'"
    assert not unknown.done and unknown.message.endswith(f"{calls}.")
    assert not misspelt.done and misspelt.message.endswith(f"{calls}; did you mean 'ship#1'?")
    assert not none.done and "it has recorded no call yet" in none.message


@pytest.mark.parametrize(
    ("columns", "place"),
    [
        ({"kind": "job", "group": "gather#1", "step_id": "gather#1[0]"}, 1),
        ({"kind": "sleep", "group": "charge#1", "step_id": "charge#1~retry1"}, 1),
        ({"kind": "child", "resolution": {"status": "failed"}}, 1),
        ({"kind": "signal", "resolution": {"timeout": True}}, 1),
        ({"kind": "approval", "resolution": {"cancelled": True}}, 1),
        ({"kind": "approval", "resolution": {"approved": False}}, 2),
        ({"kind": "sleep", "resolution": {}}, 2),
    ],
    ids=["gather", "retries", "child", "signal", "cancelled", "decided", "slept"],
)
def test_a_fork_from_where_it_failed(columns: dict[str, Any], place: int) -> None:
    made = execution("failed")
    step(made, 0)
    resolved = {"resolved_at": made.created_at} if "resolution" in columns or "group" in columns else {}
    wait(made, ordinal=1, **columns, **resolved)

    assert verbs.forking.place_of(made.pk, None, using="default") == place
    [told] = verbs.fork([made.pk], actor="ann")
    assert told.done and told.message == f"forked from call {place} as execution {told.made}"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    user("ann")
    made = execution("failed")
    step(made, 0)
    call_command("pgjobs_fork", str(made.pk), "--from", "step0", "--user", "ann", "--reason", "new code")
    new = Execution.objects.latest("id")
    assert capsys.readouterr().out == f"execution {made.pk}: forked from call 0 as execution {new.pk}\n"
    assert new.note == f"forked from execution {made.pk} at call 0 by ann: new code"
    with pytest.raises(CommandError, match=r"Left as before: 1 of 2 \(fork\)"):
        call_command("pgjobs_fork", str(made.pk), "4711", "--reason", "new code")
    assert "there is no execution 4711" in capsys.readouterr().out
    with pytest.raises(CommandError, match="--reason"):
        call_command("pgjobs_fork", str(made.pk))
    words = ("--from", "0", "--reason", "new code", "--cancel-source")
    with pytest.raises(CommandError):
        call_command("pgjobs_fork", str(made.pk), *words)
    assert "cannot be cancelled: it is failed; only" in capsys.readouterr().out
    assert Execution.objects.count() == 3
    call_command("pgjobs_fork", str(new.pk), *words)
    assert status(new) == "cancelled" and Execution.objects.count() == 4


# --- marks of an approval


def test_a_superuser_who_was_not_asked_is_marked() -> None:
    root, lead = user("root", is_superuser=True), user("lead", is_superuser=True)
    lead.groups.add(Group.objects.create(name="leads"))
    holder = user("holder", "auth.change_user", is_superuser=True)
    asked = [approval(groups=["leads"], permission="auth.change_user") for _ in range(3)]

    told = [
        decide(w.pk, approved=True, actor=who) for w, who in zip(asked, [root, lead, holder], strict=True)
    ]

    for one in asked:
        one.refresh_from_db()
    assert [one.bypassed for one in asked] == [True, False, False]
    assert [bool(one.votes[0].get("bypass")) for one in asked] == [True, False, False]
    assert [one.message for one in told] == [
        "approved by root (a superuser, who was not asked)", "approved by lead", "approved by holder"
    ]  # fmt: skip


def test_a_bypass_of_one_vote_stays_marked_when_others_follow() -> None:
    root, ann = user("root", is_superuser=True), user("ann", "pgjobs.decide_wait")
    asked = approval(quorum=2)
    assert "1 of 2 by root (a superuser" in decide(asked.pk, approved=True, actor=root).message
    decide(asked.pk, approved=True, actor=ann)
    asked.refresh_from_db()
    assert asked.bypassed and asked.decided_by == "ann"


def test_an_unknown_starter_can_be_seen_on_the_wait() -> None:
    assert approval(four_eyes=True).starter_unknown
    assert not approval(execution(started_by="7"), four_eyes=True).starter_unknown
    assert not approval().starter_unknown
