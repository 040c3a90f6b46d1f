"""The pages of incidents: what they show to whom, and the decision on a fix."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from example_project.incidents.models import Change, Fix, Incident, PullRequest
from pgjobs.models import ArchivedExecution, Execution, Wait
from tests.example.deliveries import incident
from tests.workflows.rows import resolution, user, wait

PERMISSION = "incidents.approve_fix"
SHOWN = {"cause": "the cause", "fix": "the <fix>", "patch": "-old\n+new\n", "pages": 3}

pytestmark = pytest.mark.django_db


def asked(made: Incident, **columns: Any) -> Wait:
    """The incident, parked at its approval."""
    Execution.objects.filter(pk=made.execution_id).update(status="waiting")
    given = {"name": "apply fix", "permission": PERMISSION, "context": SHOWN, "context_hash": "h"}
    return wait(made.execution, "approval", step_id="apply fix#1", due_in=60, **(given | columns))


def decide(client: Client, made: Incident, of: Wait, decision: str = "approve", **more: Any) -> Any:
    data = {"wait": of.pk, "shown": "h", "decision": decision, "reason": "because"} | more
    return client.post(reverse("incidents:decision", args=[made.pk]), data, follow=True)


@pytest.fixture
def approver(client: Client) -> User:
    """Logged in, with the permission."""
    made = user("anna", PERMISSION)
    client.force_login(made)
    return made


def test_the_list_without_incidents_names_the_webhook(client: Client) -> None:
    page = client.get(reverse("incidents:list")).content.decode()
    assert reverse("incidents:webhook") in page


def test_the_list_tells_states_in_a_bounded_number_of_queries(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        made = incident(f"delivery {number}")
        Fix.objects.create(incident=made, summary=f"fix {number}", patch="")
    Execution.objects.filter(pk=made.execution_id).update(
        status="succeeded", output={"applied": False}, completed_at=timezone.now()
    )
    with django_assert_max_num_queries(4):
        page = client.get(reverse("incidents:list")).content.decode()
    assert page.count("to be continued") == 4 and page.count("fix rejected") == 1 and "fix 3" in page


def test_an_open_fix_is_shown_to_all_and_the_form_to_who_may_decide(client: Client) -> None:
    made = incident()
    asked(made)
    page = client.get(made.get_absolute_url()).content.decode()
    assert "the &lt;fix&gt;" in page and "+new" in page and "Log in to decide" in page
    assert "csrfmiddlewaretoken" not in page.partition("<main>")[2]
    client.force_login(user("ben"))
    page = client.get(made.get_absolute_url()).content.decode()
    assert f"needs the permission {PERMISSION}" in page and "Approve" not in page
    client.force_login(user("anna", PERMISSION))
    page = client.get(made.get_absolute_url()).content.decode()
    assert 'value="approve"' in page and 'value="reject"' in page and "csrfmiddlewaretoken" in page


def test_a_page_reloads_itself_only_while_a_machine_works(client: Client) -> None:
    made = incident()
    assert 'http-equiv="refresh"' in client.get(made.get_absolute_url()).content.decode()
    asked(made)
    assert 'http-equiv="refresh"' not in client.get(made.get_absolute_url()).content.decode()


@pytest.mark.parametrize(("decision", "approved"), [("approve", True), ("reject", False)])
def test_a_decision_is_recorded_with_who_and_why(
    client: Client, approver: User, decision: str, approved: bool
) -> None:
    made = incident()
    of = asked(made)
    response = decide(client, made, of, decision)
    of.refresh_from_db()
    assert (of.approved, of.decided_by, of.reason) == (approved, "anna", "because")
    assert Execution.objects.get(pk=made.execution_id).status == "enqueued"
    page = response.content.decode()
    assert f"{'Approved' if approved else 'Rejected'} by anna." in page and "because" in page


def test_a_second_decision_is_told_and_changes_nothing(client: Client, approver: User) -> None:
    made = incident()
    of = asked(made)
    decide(client, made, of, "reject")
    first = resolution(of)
    client.force_login(user("ben", PERMISSION))
    page = decide(client, made, of, "approve").content.decode()
    assert "It was rejected before, by anna" in page
    assert resolution(of) == first


def test_a_rejection_says_why(client: Client, approver: User) -> None:
    made = incident()
    of = asked(made)
    response = decide(client, made, of, "reject", reason="  ")
    assert response.status_code == 400 and "Say why" in response.content.decode()
    assert resolution(of) is None


def test_without_the_permission_nothing_is_decided(client: Client) -> None:
    made = incident()
    of = asked(made)
    client.force_login(user("ben"))
    assert "Ben may not decide this" in decide(client, made, of).content.decode()
    assert resolution(of) is None


def test_without_a_login_one_is_asked_for(client: Client) -> None:
    made = incident()
    of = asked(made)
    response = decide(client, made, of)
    assert response.redirect_chain[0][0].startswith(reverse("incidents:login"))
    assert resolution(of) is None


def test_a_decision_needs_a_token() -> None:
    made = incident()
    of = asked(made)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user("anna", PERMISSION))
    assert decide(strict, made, of).status_code == 403
    assert resolution(of) is None


def test_a_decision_on_another_incidents_fix_is_not_found(client: Client, approver: User) -> None:
    mine, other = incident("mine"), incident("other")
    asked(mine)
    of = asked(other)
    assert decide(client, mine, of).status_code == 404
    assert resolution(of) is None


def test_what_was_not_shown_is_not_decided(client: Client, approver: User) -> None:
    made = incident()
    of = asked(made)
    assert "What you saw is not what is asked" in decide(client, made, of, shown="g").content.decode()
    assert resolution(of) is None


def test_with_four_eyes_the_starter_may_not(client: Client, approver: User) -> None:
    made = incident(four_eyes=True, actor=approver)
    assert made.execution.started_by == str(approver.pk) and made.execution.input["four_eyes"] is True
    of = asked(made, four_eyes=True)
    page = client.get(made.get_absolute_url()).content.decode()
    assert "four eyes" in page and 'value="approve"' not in page
    assert "four eyes" in decide(client, made, of).content.decode()
    assert resolution(of) is None


def test_an_incident_outlives_its_execution(client: Client) -> None:
    made = incident()
    fix = Fix.objects.create(incident=made, summary="the fix", patch="+new\n")
    change = Change.objects.create(fix=fix, approved_by="anna", approved_at=timezone.now())
    PullRequest.objects.create(change=change, branch="incident/execution-1", commit="c0ffee")
    execution = made.execution
    ArchivedExecution.objects.create(
        pk=execution.pk,
        workflow_name=execution.workflow_name,
        version=1,
        status="succeeded",
        created_at=execution.created_at,
        story={},
    )
    Execution.objects.filter(pk=execution.pk).delete()
    page = client.get(made.get_absolute_url()).content.decode()
    assert "gone to the archive" in page and "incident/execution-1" in page and ">done<" in page
    assert ">done<" in client.get(reverse("incidents:list")).content.decode()
    ArchivedExecution.objects.all().delete()
    assert "long ago" in client.get(made.get_absolute_url()).content.decode()


def test_login_leads_back(client: Client) -> None:
    User.objects.create_user("anna", password="pass-phrase")
    there = reverse("incidents:list")
    response = client.post(
        f"{reverse('incidents:login')}?next={there}",
        {"username": "anna", "password": "pass-phrase", "next": there},
    )
    assert (response.status_code, response["Location"]) == (302, there)
