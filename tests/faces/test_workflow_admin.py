"""Executions and approvals in the admin: who may look, who may act, and that a decision goes through the one verb."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pgjobs.admin import flowverbs, timeline, window, workflows
from pgjobs.models import Execution, OperatorAction, Wait
from tests.faces.pages import as_seen
from tests.support.own_database import connection
from tests.workflows.rows import approval, execution, status, step, user, wait

pytestmark = pytest.mark.django_db

EXECUTIONS = reverse("admin:pgjobs_execution_changelist")
INBOX = reverse("admin:pgjobs_wait_changelist")
HOSTILE = "<script>alert('x')</script>"
VIEW, RESUME, CANCEL = "pgjobs.view_execution", "pgjobs.resume_execution", "pgjobs.cancel_execution"
KINDS = {
    "stranger": (),
    "viewer": (VIEW,),
    "resumer": (VIEW, RESUME),
    "canceller": (VIEW, CANCEL),
    "blind": (RESUME, CANCEL),
}
BEFORE = {"resume": "paused", "retry": "failed", "cancel": "waiting"}
AFTER = {"resume": "enqueued", "retry": "enqueued", "cancel": "cancelled"}
MAY = {"resume": "resumer", "retry": "resumer", "cancel": "canceller"}


def client_of(name: str, *permissions: str, **columns: Any) -> Client:
    client = Client()
    client.force_login(user(name, *permissions, is_staff=True, **columns))
    return client


def kind(name: str) -> Client:
    return client_of(name, *KINDS[name])


def page_of(row: Execution | Wait) -> str:
    return reverse(f"admin:pgjobs_{row._meta.model_name}_change", args=[row.pk])


def text_of(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return response.content.decode()


def listed(client: Client, address: str, model: str = "execution") -> list[int]:
    found = re.findall(rf"/pgjobs/{model}/(\d+)/change/", text_of(client, address))
    return list(dict.fromkeys(map(int, found)))


def address_of_decision(on: Wait) -> str:
    return reverse("admin:pgjobs_wait_decide", args=[on.pk])


def annotated(row: Execution) -> Execution:
    return Execution.objects.annotate(clock=Now()).get(pk=row.pk)


def said(response: Any) -> str:
    return " | ".join(str(message) for message in get_messages(response.wsgi_request))


def press(client: Client, verb: str, on: Execution, reason: str = "") -> Any:
    data = {"reason": reason, **as_seen(on)}
    return client.post(reverse(f"admin:pgjobs_execution_{verb}", args=[on.pk]), data)


def give(client: Client, on: Wait, decision: str, reason: str = "", shown: str | None = None) -> Any:
    shown_hash = on.context_hash if shown is None else shown
    return client.post(
        reverse("admin:pgjobs_wait_decide", args=[on.pk]),
        {"decision": decision, "reason": reason, "shown_hash": shown_hash},
    )


@pytest.mark.parametrize("name", KINDS)
def test_executions_are_shown_to_viewers_only(name: str) -> None:
    made = execution()
    client = kind(name)

    answers = {client.get(address).status_code for address in (EXECUTIONS, page_of(made))}

    assert answers == ({200} if VIEW in KINDS[name] else {403})


@pytest.mark.parametrize("verb", BEFORE)
@pytest.mark.parametrize("name", KINDS)
def test_a_button_obeys_its_permission_and_leaves_a_trace(name: str, verb: str) -> None:
    made = execution(BEFORE[verb])

    response = press(kind(name), verb, made, "asked for")

    allowed = name == MAY[verb]
    assert response.status_code == (302 if allowed else 403)
    assert status(made) == (AFTER if allowed else BEFORE)[verb]
    assert LogEntry.objects.count() == int(allowed)
    made.refresh_from_db()
    assert (made.note == f"{flowverbs.VERBS[verb].done} by {name}: asked for") == allowed


@pytest.mark.parametrize("verb", BEFORE)
def test_a_get_asks_and_moves_nothing(verb: str) -> None:
    made = execution(BEFORE[verb])
    response = client_of("root", is_superuser=True).get(
        reverse(f"admin:pgjobs_execution_{verb}", args=[made.pk])
    )

    assert (response.status_code, status(made)) == (200, BEFORE[verb])


def test_a_button_that_does_not_fit_is_told_why() -> None:
    text = text_of(kind("resumer"), page_of(execution("succeeded")))

    assert "it is succeeded; only paused ones can be resumed." in text
    assert "it is succeeded; only failed ones can be retried." in text


def test_actions_move_the_ticked_and_say_what_was_skipped() -> None:
    paused, ended = execution("paused"), execution("succeeded")
    ticked = {"action": "resume_selected", "_selected_action": [paused.pk, ended.pk], "index": "0"}
    response = kind("resumer").post(EXECUTIONS, {**ticked, **as_seen(paused, ended)})

    assert "1 execution resumed." in said(response)
    assert f"1 skipped, not resumed: {ended.pk} (it is succeeded" in said(response)
    assert (status(paused), status(ended)) == ("enqueued", "succeeded")


def test_an_action_never_takes_a_whole_list() -> None:
    paused = execution("paused")
    data = {"action": "resume_selected", "_selected_action": [paused.pk], "index": "0", "select_across": "1"}
    response = kind("resumer").post(EXECUTIONS, data)

    assert "Nothing was done" in said(response)
    assert status(paused) == "paused"


def test_a_reason_that_cannot_be_kept_stops_the_verb() -> None:
    paused = execution("paused")

    assert "Nothing was done" in said(press(kind("resumer"), "resume", paused, "x" * 201))
    assert status(paused) == "paused"


def test_filters_by_status_and_workflow() -> None:
    made = {name: execution(name) for name in ("enqueued", "waiting", "running", "paused", "failed")}
    other = execution("waiting", workflow_name="others")
    client = kind("viewer")

    for name, row in made.items():
        assert listed(client, f"{EXECUTIONS}?status={name}&workflow_name={row.workflow_name}") == [row.pk]
    assert listed(client, f"{EXECUTIONS}?workflow_name=others") == [other.pk]
    assert listed(client, f"{EXECUTIONS}?workflow_name=%00") == []


def test_a_filter_without_index_looks_through_the_newest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = execution("failed"), execution("failed")
    monkeypatch.setattr(window, "WINDOW", 1)
    address = f"{EXECUTIONS}?status=failed"
    client = kind("viewer")

    assert listed(client, address) == [new.pk]
    assert f"Looked through the newest 1 executions only: ids above {old.pk:,}" in text_of(client, address)


def test_lists_leave_large_columns_in_the_table() -> None:
    execution("failed", last_error="boom\nand more", input={"a": 1})
    client = kind("viewer")
    with CaptureQueriesContext(connection) as captured:
        text = text_of(client, EXECUTIONS)

    [sql] = [query["sql"] for query in captured.captured_queries if '"error_start"' in query["sql"]]
    selected = sql.split(" FROM ")[0].split(", ")
    assert "boom" in text and "and more" not in text
    assert '"pgjobs_execution"."workflow_name"' in selected
    assert not {f'"pgjobs_execution"."{name}"' for name in workflows.ExecutionAdmin.large_columns} & set(
        selected
    )


def test_the_timeline_tells_calls_in_their_order_and_what_came_of_each() -> None:
    made = execution()
    step(made, 0, output={"cause": "disk full"}, attempts=2, seconds=1.5)
    step(made, 1, error={"type": "ValueError", "message": "no"})
    wait(made, "sleep", ordinal=2, resolved_at=Now(), resolution={"slept": True})
    asked = approval(made, ordinal=3)
    Wait.objects.filter(pk=asked.pk).update(wake_at=Now() + timedelta(hours=2))

    rows = timeline.of(annotated(made), admin.site)["rows"]

    assert [row["call"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["state"].split(" for ")[0] for row in rows] == ["recorded", "failed", "resolved", "open"]
    assert "disk full" in rows[0]["told"] and rows[0]["more"] == "2 attempts, the last took 1.5 s"
    assert rows[3]["more"].startswith("due in 1 h 59 min") and rows[3]["url"] == page_of(asked)
    assert "disk full" in text_of(kind("viewer"), page_of(made))


def test_a_long_history_is_shown_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST", 3)
    made = execution()
    for ordinal in range(5):
        step(made, ordinal)

    text = text_of(kind("viewer"), page_of(made))

    assert "Only 3 calls are shown." in text
    assert "step2#1" in text and "step3#1" not in text


def test_nothing_from_a_row_is_markup() -> None:
    columns = {"workflow_name": HOSTILE, "key": HOSTILE, "note": HOSTILE, "input": {HOSTILE: HOSTILE}}
    made = execution("paused", pause_reason=HOSTILE, errors=[{"message": HOSTILE}], output=HOSTILE, **columns)
    step(made, 0, output=HOSTILE)
    asked = approval(
        made, name=HOSTILE, context={HOSTILE: HOSTILE}, permission=HOSTILE, votes=[{"by": HOSTILE}]
    )
    client = client_of("root", is_superuser=True)

    for address in (EXECUTIONS, page_of(made), INBOX, page_of(asked)):
        text = text_of(client, address)
        assert "&lt;script&gt;" in text, address
        assert "<script>alert" not in text, address
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", text), address


def test_the_inbox_has_what_is_addressed_to_a_person_and_viewers_see_all() -> None:
    deploy, purge = (approval(permission=f"auth.{name}") for name in ("add_user", "delete_user"))
    decided = approval(permission="auth.add_user", resolved_at=Now(), approved=True, decided_by="bob")

    assert listed(client_of("ann", "auth.add_user"), INBOX, "wait") == [deploy.pk]
    viewer = client_of("viewer", "pgjobs.view_wait")
    assert listed(viewer, INBOX, "wait") == [deploy.pk, purge.pk]
    assert "It is decided." in text_of(viewer, page_of(decided))
    assert client_of("stranger").get(INBOX).status_code == 403


def test_waits_of_other_kinds_are_no_approvals() -> None:
    slept = wait(execution(), "sleep", due_in=60)

    assert client_of("viewer", "pgjobs.view_wait").get(page_of(slept)).status_code == 404


@pytest.mark.parametrize(("decision", "approved"), [("approve", True), ("reject", False)])
def test_a_decision_by_the_form(decision: str, approved: bool) -> None:
    asked = approval(context={"patch": "rm -rf"}, context_hash="f" * 64, permission="auth.add_user")
    client = client_of("ann", "auth.add_user")
    text = text_of(client, page_of(asked))
    assert "rm -rf" in text and f'value="{"f" * 64}"' in text

    response = give(client, asked, decision, "I looked")

    asked.refresh_from_db()
    assert (asked.approved, asked.decided_by, asked.reason) == (approved, "ann", "I looked")
    assert status(asked.execution) == "enqueued"
    assert response["Location"] == reverse("admin:index")  # nothing else is asked of ann
    assert LogEntry.objects.get().change_message == f"{'Approved' if approved else 'Rejected'} by ann"


def test_whoever_rejects_says_why() -> None:
    asked = approval(permission="auth.add_user")
    response = give(client_of("ann", "auth.add_user"), asked, "reject")

    assert "Say why you reject." in said(response)
    assert (status(asked.execution), OperatorAction.objects.count()) == ("waiting", 0)


def test_whoever_comes_second_is_told_who_decided() -> None:
    asked = approval(permission="auth.add_user")
    page = address_of_decision(asked)
    ann, bob = (
        client_of("ann", "auth.add_user", "pgjobs.view_wait"),
        client_of("bob", "auth.add_user", "pgjobs.view_wait"),
    )
    give(ann, asked, "approve", "fine")
    answer = bob.post(page, {"decision": "reject", "reason": "no", "shown_hash": asked.context_hash})

    assert "it was approved before, by ann" in said(answer)
    asked.refresh_from_db()
    assert asked.approved
    assert [(each.actor, each.via, each.done) for each in OperatorAction.objects.order_by("pk")] == [
        ("ann", "admin", 1),
        ("bob", "admin", 0),
    ]


def test_the_question_comes_first_and_in_words() -> None:
    asked = approval(
        context={"sum": "1,204.10", "token": "tok-5566"}, permission="auth.add_user", four_eyes=True
    )
    Wait.objects.filter(pk=asked.pk).update(wake_at=Now() + timedelta(minutes=30))
    text = text_of(client_of("ann", "auth.add_user"), page_of(asked))

    assert "<dt>sum</dt><dd>1,204.10</dd>" in text
    assert "tok-5566" not in text
    assert "rejected" in text and "permission auth.add_user" in text
    assert "starter unknown" in text


def test_decided_approvals_are_a_tab_for_viewers() -> None:
    decided = approval(resolved_at=Now(), approved=False, decided_by="bob", reason="too dear")
    open_one = approval()
    viewer = client_of("viewer", "pgjobs.view_wait")

    assert listed(viewer, INBOX, "wait") == [open_one.pk]
    assert listed(viewer, f"{INBOX}?decided=1", "wait") == [decided.pk]
    assert "too dear" in text_of(viewer, page_of(decided))


def test_what_changed_since_it_was_shown_is_not_decided() -> None:
    asked = approval(context_hash="f" * 64, permission="auth.add_user")

    response = give(client_of("ann", "auth.add_user"), asked, "approve", shown="0" * 64)

    assert "what you saw is not what is asked" in said(response)
    assert (status(asked.execution), LogEntry.objects.count()) == ("waiting", 0)


def test_who_may_look_but_not_decide_is_told_why() -> None:
    asked = approval(permission="auth.add_user")
    client = client_of("viewer", "pgjobs.view_wait")

    user("ann", "auth.add_user")
    assert "no active user holds permission" in text_of(
        client, page_of(approval(permission="auth.view_user"))
    )
    text = text_of(client, page_of(asked))
    assert "You cannot decide this: viewer may not decide this" in text
    assert "! Nobody but a superuser can decide it: " not in text
    misspelt = approval(permission="auth.chnage_user")
    text = text_of(client, page_of(misspelt))
    assert "! Nobody but a superuser can decide it: there is no permission" in text and "did you mean" in text
    assert give(client, asked, "approve").status_code == 403
    refused = OperatorAction.objects.get()
    assert (refused.verb, refused.actor, refused.refused) == ("decide", "viewer", 1)
    assert status(asked.execution) == "waiting"


def test_whoever_is_not_asked_gets_no_further(client: Client) -> None:
    asked = approval(permission="auth.add_user")
    approval(permission="auth.delete_user")

    assert give(client_of("other", "auth.delete_user"), asked, "approve").status_code == 403
    assert give(client_of("stranger"), asked, "approve").status_code == 403
    assert [each.actor for each in OperatorAction.objects.order_by("pk")] == ["other", "stranger"]
    assert give(client, asked, "approve").status_code == 302
    assert (
        client_of("root", is_superuser=True)
        .get(reverse("admin:pgjobs_wait_decide", args=[asked.pk]))
        .status_code
        == 405
    )
    assert status(asked.execution) == "waiting"


def test_a_post_from_another_site_is_refused() -> None:
    asked = approval()
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))

    assert give(client, asked, "approve").status_code == 403
    assert status(asked.execution) == "waiting"


@pytest.mark.parametrize(
    ("field", "value"), [("decision", "maybe"), ("reason", "nul \x00"), ("reason", "x" * 2_001)]
)
def test_a_form_that_makes_no_sense_decides_nothing(field: str, value: str) -> None:
    asked = approval()
    data = {"decision": "approve", "shown_hash": asked.context_hash, field: value}
    root = client_of("root", is_superuser=True)
    response = root.post(reverse("admin:pgjobs_wait_decide", args=[asked.pk]), data)

    assert "Nothing was decided" in said(response) and field in said(response)
    assert status(asked.execution) == "waiting"


def test_a_quorum_shows_the_votes_so_far() -> None:
    asked = approval(quorum=2, permission="auth.add_user")
    give(client_of("ann", "auth.add_user"), asked, "approve", "fine")
    bob = client_of("bob", "auth.add_user")

    assert "ann" in text_of(bob, page_of(asked))
    give(bob, asked, "approve")

    asked.refresh_from_db()
    assert asked.approved and [vote["by"] for vote in asked.votes] == ["ann", "bob"]
