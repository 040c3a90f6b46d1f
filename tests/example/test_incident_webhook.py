"""The webhook: what it lets in, what it makes of it, and that a delivery counts once."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections
from django.test import Client
from django.urls import reverse

from example_project.documents.models import Document
from example_project.incidents.models import Incident
from example_project.incidents.signature import is_signed, sign
from pgjobs.models import Execution
from tests.example.deliveries import REAL_BODIES, SECRET, body, send

FAILURES = [
    ("check_run", "failure"),
    ("check_run", "timed_out"),
    ("check_suite", "startup_failure"),
    ("deployment_status", "error"),
    ("deployment_status", "failure"),
    ("status", "failure"),
    ("status", "error"),
]
NO_FAILURES = [
    ("check_run", "success"),
    ("check_run", "cancelled"),
    ("check_suite", "neutral"),
    ("deployment_status", "in_progress"),
    ("status", "pending"),
]


@pytest.fixture(autouse=True)
def secret(settings: Any) -> None:
    settings.INCIDENTS_WEBHOOK_SECRET = SECRET


def nothing_started() -> bool:
    return not Incident.objects.exists() and not Execution.objects.exists()


def test_the_signature_is_githubs() -> None:
    """The example of GitHub's documentation."""
    expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert sign(b"Hello, World!", "It's a Secret to Everybody") == expected


def test_no_signature_holds_without_a_secret() -> None:
    with pytest.raises(ValueError, match="empty secret"):
        is_signed(b"x", sign(b"x", ""), "")


@pytest.mark.django_db
@pytest.mark.parametrize(("event", "outcome"), FAILURES)
def test_a_failure_starts_one_execution(client: Client, event: str, outcome: str) -> None:
    response = send(client, body(event, outcome), event, delivery="72d3162e")
    incident = Incident.objects.get()
    execution = incident.execution
    assert (response.status_code, response.json()) == (
        202,
        {"incident": incident.pk, "execution": execution.pk, "started": True},
    )
    assert (incident.delivery, incident.kind, incident.outcome) == ("72d3162e", event, outcome)
    assert incident.repository == "example/shop" and incident.commit == "c0ffee" * 6
    assert incident.payload == body(event, outcome)
    assert (execution.workflow_name, execution.key) == ("incidents.respond", "delivery:72d3162e")
    assert execution.subject == incident and execution.input["incident_id"] == incident.pk


@pytest.mark.django_db
@pytest.mark.parametrize(("event", "outcome"), NO_FAILURES)
def test_what_is_no_failure_is_ignored(client: Client, event: str, outcome: str) -> None:
    response = send(client, body(event, outcome), event)
    assert response.status_code == 200 and outcome in response.json()["ignored"]
    assert nothing_started()


@pytest.mark.django_db
def test_a_check_that_still_runs_is_ignored(client: Client) -> None:
    created = body("check_run", "failure") | {"action": "created"}
    assert "ignored" in send(client, created).json()
    assert nothing_started()


@pytest.mark.django_db
@pytest.mark.parametrize("event", ["ping", "push"])
def test_events_that_nobody_watches_are_ignored(client: Client, event: str) -> None:
    response = send(client, {"zen": "Keep it logically awesome."}, event)
    assert response.status_code == 200 and event in response.json()["ignored"]
    assert nothing_started()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "event", ["check_run.completed", "check_suite.completed", "deployment_status", "status"]
)
def test_real_bodies(client: Client, event: str) -> None:
    path = REAL_BODIES / f"{event}.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this repository, in shared/data/webhooks")
    name, real = event.partition(".")[0], json.loads(path.read_bytes())
    assert "ignored" in send(client, path.read_bytes(), name, delivery="as it was").json()
    assert nothing_started()
    told = real if name == "status" else real[name]
    told["conclusion" if name.startswith("check") else "state"] = "failure"
    assert send(client, real, name, delivery="failed").status_code == 202
    incident = Incident.objects.get()
    assert incident.repository == "Codertocat/Hello-World" and len(incident.commit) == 40
    assert incident.payload == real


@pytest.mark.django_db
@pytest.mark.parametrize(
    "signature",
    ["", "sha256=", sign(b"another body", SECRET), "sha1=0000", "sha256=\xfc" + "0" * 63],
    ids=["missing", "empty", "of another body", "another scheme", "not ASCII"],
)
def test_a_wrong_signature_is_forbidden(client: Client, signature: str) -> None:
    response = send(client, body("check_run", "failure"), signature=signature)
    assert response.status_code == 403 and "X-Hub-Signature-256" in response.json()["error"]
    assert nothing_started()


@pytest.mark.django_db
def test_another_secret_is_forbidden(client: Client) -> None:
    assert send(client, body("check_run", "failure"), signed_with="guessed").status_code == 403
    assert nothing_started()


@pytest.mark.django_db
def test_without_a_secret_nothing_is_taken(client: Client, settings: Any) -> None:
    settings.INCIDENTS_WEBHOOK_SECRET = ""
    response = send(client, body("check_run", "failure"), signed_with="")
    assert response.status_code == 503 and "INCIDENTS_WEBHOOK_SECRET" in response.json()["error"]
    assert nothing_started()


@pytest.mark.django_db
def test_a_redelivery_starts_nothing(client: Client) -> None:
    first = send(client, body("check_run", "failure"), delivery="same")
    second = send(client, body("check_run", "failure"), delivery="same")
    assert (first.status_code, second.status_code) == (202, 200)
    assert second.json() == first.json() | {"started": False}
    assert Incident.objects.count() == Execution.objects.count() == 1
    assert send(client, body("check_run", "failure"), delivery="another").status_code == 202
    assert Incident.objects.count() == Execution.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_delivery_twice_at_once_starts_one_execution() -> None:
    count = 4
    barrier = threading.Barrier(count)

    def deliver(_: int) -> dict[str, Any]:
        try:
            barrier.wait(20)
            return send(Client(), body("check_run", "failure"), delivery="at once").json()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        told = list(pool.map(deliver, range(count)))
    assert sorted(answer["started"] for answer in told) == [False, False, False, True]
    assert {answer["execution"] for answer in told} == {Execution.objects.get().pk}


REFUSE_COMMIT = """
CREATE FUNCTION refuse_commit() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'refused at commit'; END $$;
CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT ON incidents_incident
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_commit();"""


@pytest.mark.django_db(transaction=True)
def test_incident_and_execution_commit_together(client: Client) -> None:
    """A commit that is refused at its very end leaves neither."""
    with connection.cursor() as cursor:
        cursor.execute(REFUSE_COMMIT)
    try:
        with pytest.raises(DatabaseError, match="refused at commit"):
            send(client, body("check_run", "failure"))
        assert not Incident.objects.exists() and not Execution.objects.exists()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse_commit CASCADE")

    send(client, body("check_run", "failure"))
    assert Incident.objects.get().execution_id == Execution.objects.get().pk


@pytest.mark.django_db
def test_runbooks_of_the_repository_are_attached(client: Client) -> None:
    for title in ("Shop-Runbook 2.pdf", "billing-runbook.pdf", "shop.pdf"):
        Document.objects.create(title=title, sha256="0" * 64, size=1)
    send(client, body("check_run", "failure"))
    assert [each.title for each in Incident.objects.get().documents.all()] == ["Shop-Runbook 2.pdf"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b" ", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"payload=%7B%7D", "no JSON"),
        (b"[]", "a JSON list"),
        (b"null", "a JSON NoneType"),
        (b'{"action": NaN}', "NaN is not in JSON"),
        (b'{"action": 1e999}', "cannot be stored"),
        (b'{"action": "\\u0000"}', "cannot be stored"),
        (b'{"action": "\\ud800"}', "cannot be stored"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "cannot be stored"),
        (b'{"n": ' + b"9" * 5_000 + b"}", "no JSON"),
        (b"{}", "no body of the event 'check_run'"),
        (b'{"check_run": 7, "action": "completed"}', "no body of the event"),
        (b'{"check_run": {}, "action": "completed"}', "KeyError"),
    ],
    ids=range(16),
)
def test_garbage_is_refused_with_a_reason(client: Client, content: bytes, told: str) -> None:
    response = send(client, content)
    assert response.status_code == 400 and told in response.json()["error"]
    assert nothing_started()


@pytest.mark.django_db
@pytest.mark.parametrize(("event", "delivery"), [("", "one"), ("check_run", ""), ("check_run", "x" * 101)])
def test_headers_must_say_what_it_is(client: Client, event: str, delivery: str) -> None:
    response = send(client, body("check_run", "failure"), event, delivery=delivery)
    assert response.status_code == 400 and "X-GitHub-Delivery" in response.json()["error"]
    assert nothing_started()


@pytest.mark.django_db
def test_too_large_a_body_is_refused(client: Client, settings: Any) -> None:
    settings.INCIDENTS_WEBHOOK_MAX_BYTES = 2_000
    large = body("check_run", "failure") | {"filling": "x" * 2_000}
    response = send(client, large)
    assert response.status_code == 413 and "2,000 bytes" in response.json()["error"]
    fitting = body("check_run", "failure") | {"filling": "x" * 1_000}
    assert send(client, fitting).status_code == 202


@pytest.mark.django_db
def test_djangos_own_limit_is_answered_alike(client: Client, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    assert send(client, body("check_run", "failure")).status_code == 413
    assert nothing_started()


@pytest.mark.django_db
def test_only_json_is_taken(client: Client) -> None:
    response = send(client, body("check_run", "failure"), content_type="application/x-www-form-urlencoded")
    assert response.status_code == 415
    assert nothing_started()


@pytest.mark.django_db
def test_only_posts_are_taken_and_no_token_is_asked_for() -> None:
    strict = Client(enforce_csrf_checks=True)
    assert strict.get(reverse("incidents:webhook")).status_code == 405
    assert send(strict, body("check_run", "failure")).status_code == 202


@pytest.mark.django_db
def test_long_names_fit(client: Client) -> None:
    long = body("check_run", "failure")
    long["check_run"] |= {"name": "n" * 1_000, "conclusion": "failure"}
    long["repository"]["full_name"] = "o/" + "r" * 1_000
    assert send(client, long).status_code == 202
    assert len(Incident.objects.get().title) == 300
