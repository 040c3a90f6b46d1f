"""Retry with options, and edit and retry: what it shows before, and what it makes of secrets and of large numbers."""

import json
from typing import Any

import pytest
from django.test import Client

from pgjobs.models import Job, OperatorAction
from pgjobs.redaction import MARK
from tests.faces.pages import address, person, said, text_of
from tests.faces.rows import make_job

pytestmark = pytest.mark.django_db

LARGE = 2**53 + 1
PAYLOAD = {"word": "amount", "note": {"order": LARGE, "token": "tok-5566"}}


def dead(**columns: Any) -> Job:
    return make_job("dead", **({"job_type": "jobsapp.echo", "payload": PAYLOAD, "max_attempts": 1} | columns))


def post(client: Client, job: Job, path: str = "", **data: Any) -> Any:
    return client.post(
        address("job_options", job.pk) + path, {"expected": f"{job.status}:{job.attempt_count}", **data}
    )


def edited(**changes: Any) -> str:
    return json.dumps(PAYLOAD | {"note": {"order": LARGE, "token": MARK}} | changes)


def test_the_page_shows_the_payload_without_its_secrets_and_with_exact_numbers() -> None:
    text = text_of(person("ann", "retry_job", "edit_payload"), address("job_options", dead().pk))

    assert str(LARGE) in text and MARK in text
    assert "tok-5566" not in text


def test_a_plain_retry_takes_its_options_and_keeps_the_job() -> None:
    job = dead()
    response = post(
        person("ann", "retry_job"),
        job,
        more_attempts="3",
        in_minutes="10",
        priority="7",
        reason="it is fixed",
    )

    job.refresh_from_db()
    assert (job.status, job.priority, job.max_attempts) == ("pending", 7, 4)
    assert job.available_at > job.created_at
    assert job.note == "retried by ann: it is fixed"
    assert "1 job retried." in said(response)


def test_an_edited_payload_makes_a_new_job_and_keeps_the_secret_and_the_old_one() -> None:
    job = dead()
    response = post(person("ann", "retry_job", "edit_payload"), job, edit="1", payload=edited(word="b"))

    job.refresh_from_db()
    copy = Job.objects.get(copied_from=job.pk)
    assert copy.payload == {"word": "b", "note": {"order": LARGE, "token": "tok-5566"}}
    assert job.payload == PAYLOAD and job.superseded_by == copy.pk
    assert response["Location"] == address("job_change", copy.pk)
    recorded = OperatorAction.objects.get(verb="edit_copy")
    assert (recorded.actor, recorded.via, recorded.done) == ("ann", "admin", 1)
    assert "tok-5566" not in json.dumps(recorded.details)


def test_a_plain_retry_does_not_pass_over_an_edit() -> None:
    job = dead()
    client = person("ann", "retry_job", "edit_payload")

    response = post(client, job, payload=edited(word="b"))

    assert "The payload in the form was changed" in response.content.decode()
    assert Job.objects.get().status == "dead"
    post(client, job, payload=edited())
    assert Job.objects.get().status == "pending"


def test_a_preview_shows_what_changes_and_does_nothing() -> None:
    job = dead()
    changed = edited(word="b", note={"order": LARGE + 1, "token": MARK})
    response = post(person("ann", "retry_job", "edit_payload"), job, "?preview=1", edit="1", payload=changed)

    text = response.content.decode()
    assert "note.order" in text and str(LARGE) in text and str(LARGE + 1) in text
    assert "note.token" not in text and "tok-5566" not in text
    assert Job.objects.count() == 1 and OperatorAction.objects.count() == 0


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ('{"word": "a",\n  "note": }', "line 2, column 11"),
        ("[1]", "must be an object"),
        ('{"word": NaN}', "NaN"),
        ('{"wrong": 1}', "cannot be called this way"),
        (json.dumps({"word": "x", "elsewhere": MARK}), "elsewhere"),
    ],
)
def test_what_cannot_be_is_told_and_the_text_is_kept(payload: str, told: str) -> None:
    job = dead(job_type="jobsapp.ok" if "wrong" in payload else "jobsapp.echo")
    response = post(person("ann", "retry_job", "edit_payload"), job, edit="1", payload=payload)

    text = response.content.decode()
    assert response.status_code == 200
    assert "Nothing was done" in text and told in text
    assert "textarea" in text and Job.objects.count() == 1


def test_editing_is_a_right_of_its_own() -> None:
    job = dead()
    client = person("ann", "retry_job")

    assert "textarea" not in text_of(client, address("job_options", job.pk))
    assert post(client, job, edit="1", payload=edited()).status_code == 403
    assert Job.objects.count() == 1
    assert OperatorAction.objects.get().details["missing_permission"] == "pgjobs.edit_payload"


def test_a_stale_page_does_nothing_and_says_what_it_is_now() -> None:
    job = dead()
    client = person("ann", "retry_job", "edit_payload")
    Job.objects.filter(pk=job.pk).update(attempt_count=job.attempt_count + 1)

    for more in ({}, {"edit": "1", "payload": edited()}):
        response = post(client, job, **more)
        assert "when you looked" in said(response)
    assert Job.objects.get().status == "dead"


def test_the_page_warns_of_what_will_keep_it_from_running() -> None:
    text = text_of(person("ann", "retry_job"), address("job_options", dead(job_type="gone.type").pk))

    assert "No handler of this process carries gone.type" in text
    assert "No live worker serves the queue default" in text


@pytest.mark.parametrize("status", ["pending", "running", "succeeded"])
def test_what_cannot_be_retried_says_why_and_has_no_button(status: str) -> None:
    text = text_of(person("ann", "retry_job"), address("job_options", make_job(status).pk))

    assert f"it is {status}; only" in text
    assert "Retry as it is" not in text
