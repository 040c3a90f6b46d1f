"""Who may do what from which state: every verb of the table of rights, for every person, in every state."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from pgjobs.models import Acknowledgement, Execution, Job, OperatorAction
from pgjobs.queue.acknowledging import acknowledge, mute
from pgjobs.queue.rights import RIGHTS, Right
from pgjobs.queue.standing import mark
from pgjobs.queue.standing import standing as standings
from pgjobs.queue.states import JobStatus
from pgjobs.workflows.states import ExecutionStatus
from tests.faces.pages import VIEW, address, as_seen, person, text_of
from tests.faces.rows import make_job
from tests.workflows.rows import execution

pytestmark = pytest.mark.django_db

CODENAMES = sorted({right.permission.removeprefix("pgjobs.") for right in RIGHTS})
Act = Callable[[Client, Any, Right], Any]


def press_job(client: Client, job: Job, right: Right) -> Any:
    seen = {"expected": f"{job.status}:{job.attempt_count}"}
    if right.verb == "edit_copy":
        data = {**seen, "edit": "1", "payload": '{"value": 2}'}
        return client.post(address("job_options", job.pk), data)
    return client.post(address(f"job_{right.verb}", job.pk), seen)


def press_execution(client: Client, row: Execution, right: Right) -> Any:
    data = {
        "expected": f"{row.status}:{row.attempt_count}",
        "reason": "asked for",
        "name": "paid",
        "from_ordinal": "0",
    }
    return client.post(address(f"execution_{right.verb}", row.pk), data)


class Cause:
    """Stands for the row of a cause, which has none while it is open."""

    objects = Acknowledgement.objects

    def __init__(self, status: str) -> None:
        self.pk = "f00d"
        make_job("dead", fingerprint=self.pk)
        if status == "acknowledged":
            acknowledge([self.pk], actor="ben", reason="known")
        elif status == "muted":
            mute([self.pk], until=timedelta(hours=1), actor="ben", reason="known")


def press_error(client: Client, row: Cause, right: Right) -> Any:
    seen = f"{mark(standings().get(row.pk))}:{row.pk}"
    data = {"fingerprint": row.pk, "seen": seen, "reason": "asked for", "hours": "2"}
    return client.post(address(f"errorgroup_{right.verb}"), data)


PRESS: dict[str, Act] = {"job": press_job, "execution": press_execution, "error": press_error}
STATES = {
    "job": JobStatus.values,
    "execution": ExecutionStatus.values,
    "error": ["open", "acknowledged", "muted"],
}
CASES = [(right, status) for right in RIGHTS for status in STATES.get(right.target, ())]


def made(right: Right, status: str) -> Any:
    if right.target == "execution":
        return execution(status)
    if right.target == "error":
        return Cause(status)
    columns: dict[str, Any] = {"available_at": "2100-01-01T00:00:00Z"} if status == "pending" else {}
    if right.verb == "restore" and status in right.states:
        columns["discarded_at"] = "2026-01-01T00:00:00Z"
    return make_job(status, payload={"value": 1}, **columns)


def standing(row: Any) -> list[Any]:
    """All that a verb could have changed."""
    model = type(row)
    return list(model.objects.order_by("pk").values())


@pytest.mark.parametrize(("right", "status"), CASES, ids=lambda each: getattr(each, "verb", each))
def test_a_verb_moves_what_it_fits_for_those_who_may_and_nothing_else(right: Right, status: str) -> None:
    row = made(right, status)
    press = PRESS[right.target]
    codename = right.permission.removeprefix("pgjobs.")
    besides = ["retry_job"] if right.verb == "edit_copy" else []
    others = [name for name in CODENAMES if name != codename]
    before = standing(row)

    refused = press(person("everything-else", *others), row, right)

    assert refused.status_code == 403
    assert standing(row) == before
    told = OperatorAction.objects.latest("pk")
    assert (told.verb, told.target_kind, told.target_ids) == (right.verb, right.target, [row.pk])
    assert (told.actor, told.via, told.refused, told.done) == ("everything-else", "admin", 1, 0)

    answer = press(person("this-alone", codename, *besides), row, right)

    fits = not right.states or status in right.states
    assert answer.status_code in (200, 302)
    latest = OperatorAction.objects.latest("pk")
    if fits:
        assert (latest.actor, latest.done) == ("this-alone", 1)
    else:
        assert standing(row) == before


@pytest.mark.parametrize("right", dict.fromkeys(right for right, _ in CASES), ids=lambda right: right.verb)
def test_who_may_not_look_may_not_act(right: Right, client: Client) -> None:
    row = made(right, min(right.states, default="succeeded"))
    blind = person("blind", *CODENAMES)
    User.objects.get(username="blind").user_permissions.remove(*Permission.objects.filter(codename__in=VIEW))
    press = PRESS[right.target]
    before = standing(row)

    assert press(blind, row, right).status_code == 403
    refusal = OperatorAction.objects.get(actor="blind")
    asked = {"edit_copy": "retry"}.get(right.verb, right.verb)  # whose page it is on
    assert (refusal.verb, refusal.refused) == (asked, 1) and "missing_permission" in refusal.details
    assert press(client, row, right).status_code == 302  # to the login
    assert standing(row) == before


@pytest.mark.parametrize("status", JobStatus.values)
def test_a_viewer_sees_no_buttons(status: str) -> None:
    job = make_job(status, payload={"token": "tok-5566"})
    client = person("viewer")

    for page in (
        address("job_change", job.pk),
        address("runningjob_changelist"),
        address("queue_changelist"),
    ):
        text = text_of(client, page)
        content = text[text.index('id="content-main"') :]
        assert "<form" not in content, page


@pytest.mark.parametrize("verb", ["retry", "cancel", "release", "run_now", "discard"])
def test_a_stale_tab_does_nothing_and_says_what_happened_meanwhile(verb: str) -> None:
    [right] = [each for each in RIGHTS if each.target == "job" and each.verb == verb]
    job = made(right, next(iter(right.states)))
    client = person("ann", right.permission.removeprefix("pgjobs."))
    seen = {"expected": f"{job.status}:{job.attempt_count}"}
    Job.objects.filter(pk=job.pk).update(attempt_count=job.attempt_count + 3)
    before = standing(job)

    response = client.post(address(f"job_{verb}", job.pk), seen, follow=True)

    assert "Nothing was done" in response.content.decode()
    assert "when you looked" in response.content.decode()
    assert standing(job) == before


@pytest.mark.parametrize("page", ["job", "deadjob", "execution"])
def test_an_action_on_ticked_rows_without_its_right_is_refused_and_recorded(page: str) -> None:
    row = execution("failed") if page == "execution" else make_job("dead")
    data = {"action": "retry_selected", "index": "0", "_selected_action": [row.pk]}
    before = standing(row)

    assert person("viewer").post(address(f"{page}_changelist"), data).status_code == 403
    assert standing(row) == before
    [told] = OperatorAction.objects.all()
    assert (told.verb, told.actor, told.target_ids, told.refused) == ("retry", "viewer", [row.pk], 1)


def test_what_the_blind_try_on_many_is_on_record_too() -> None:
    dead, failed = make_job("dead", fingerprint="f00d"), execution("failed")
    blind = person("blind", *CODENAMES)
    User.objects.get(username="blind").user_permissions.remove(*Permission.objects.filter(codename__in=VIEW))
    ticked = {"action": "retry_selected", "index": "0", "reason": "INC-1"}
    tried = [
        (address("job_changelist"), {**ticked, "_selected_action": [dead.pk], **as_seen(dead)}),
        (address("deadjob_changelist"), {**ticked, "_selected_action": [dead.pk], **as_seen(dead)}),
        (address("job_retry_ticked"), {"_selected_action": [dead.pk], **as_seen(dead)}),
        (address("execution_changelist"), {**ticked, "_selected_action": [failed.pk], **as_seen(failed)}),
        (address("job_bulk") + "?verb=retry&status=dead", {"reason": "INC-1", "upper_id": dead.pk}),
        (address("errorgroup_plan"), {"plan": "retry", "fingerprint": "f00d"}),
    ]

    assert [blind.post(page, data).status_code for page, data in tried] == [403] * len(tried)
    assert (blind.get(tried[-2][0]).status_code, standing(dead)[0]["status"]) == (403, "dead")
    told = [
        (each.verb, each.target_kind, each.target_ids, each.details["missing_permission"])
        for each in OperatorAction.objects.order_by("pk")
    ]
    on_job = ("retry", "job", [dead.pk], "pgjobs.view_job")
    on_execution = ("retry", "execution", [failed.pk], "pgjobs.view_execution")
    planned = ("start", "bulk", [], "pgjobs.view_job")
    assert told == [on_job, on_job, on_job, on_execution, planned, planned]


def test_ticked_rows_carry_what_was_seen_too() -> None:
    moved, still = make_job("dead"), make_job("dead")
    client = person("ann", "retry_job")
    text = text_of(client, address("job_changelist"))
    for job in (moved, still):
        assert f'name="seen" value="{job.pk}:dead:1"' in text
    Job.objects.filter(pk=moved.pk).update(attempt_count=5)

    client.post(
        address("job_changelist"),
        {
            "action": "retry_selected",
            "index": "0",
            "_selected_action": [moved.pk, still.pk],
            "seen": [f"{moved.pk}:dead:1", f"{still.pk}:dead:1"],
        },
    )

    assert {job.pk: job.status for job in Job.objects.all()} == {moved.pk: "dead", still.pk: "pending"}


@pytest.mark.parametrize("where", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_a_verb_leads_back_to_this_site_only(where: str) -> None:
    job = make_job("dead")

    response = person("ann", "retry_job").post(address("job_retry", job.pk), {"next": where, **as_seen(job)})

    assert response["Location"] == address("job_change", job.pk)


def test_a_verb_leads_back_to_the_list_with_its_filters() -> None:
    job = make_job("running")
    back = address("runningjob_changelist") + "?queue=default"

    response = person("ann", "cancel_job").post(address("job_cancel", job.pk), {"next": back, **as_seen(job)})

    assert response["Location"] == back


def test_too_many_ticked_are_refused() -> None:
    response = person("ann", "cancel_job").post(
        address("job_cancel_ticked"), {"_selected_action": list(range(1, 102))}, follow=True
    )

    assert "101 are ticked, and 100 are the most" in response.content.decode()


def test_enter_in_a_field_presses_no_verb() -> None:
    """The first button of a form is what Enter presses: one that does nothing, where there are several."""
    job = make_job("dead")
    make_job("running")
    client = person("root", is_superuser=True)
    pages = ("job_change", job.pk), ("job_options", job.pk), ("runningjob_changelist",)
    for name, *args in pages:
        content = text_of(client, address(name, *args)).split('id="content-main"')[1]
        for form in re.findall(r"<form.*?</form>", content, re.DOTALL):
            buttons = re.findall(r'<button type="submit"[^>]*>', form)
            assert len(buttons) < 2 or buttons[0] == '<button type="submit" disabled hidden>', (name, buttons)
