"""Edit and retry: a new job with the edited payload; the old row stays what it was."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from pgjobs.exceptions import InvalidOption, MarkLeft, NotStorable, SignatureMismatch, UnknownJobType
from pgjobs.queue.control import retry
from pgjobs.queue.editing import edit_copy
from pgjobs.queue.models import Job, JobResult, OperatorAction
from pgjobs.queue.outcomes import Raised
from pgjobs.redaction import MARK, redacted
from tests.leases.factories import PROBLEM, columns, end, pending, running, whole_row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scratch")]

KIND = "tests.charge"
PAYLOAD = {"order": 9007199254740993, "amount": "12.50"}


@pytest.fixture
def charge(scratch: None) -> None:
    from pgjobs import job

    @job(name=KIND, takes_context=True)
    def charge(ctx: Any, order: int, amount: str, note: str = "") -> None: ...


def dead(**options: Any) -> int:
    job = running(job_type=KIND, payload=PAYLOAD, max_attempts=1, **options)
    end(job, Raised(PROBLEM, 0))
    return job.lease.pk


def test_the_copy_runs_and_the_old_row_is_evidence(charge: None) -> None:
    pk = dead(idempotency_key="order-991", queue="billing", priority=9)
    before = whole_row(pk)

    outcome = edit_copy(pk, {**PAYLOAD, "amount": "12.05"}, actor="ann", reason="typing error")

    assert outcome.done and outcome.made and outcome.message == f"copied as job {outcome.made} (was dead)"
    copy = whole_row(outcome.made)
    assert copy["payload"] == {"order": 9007199254740993, "amount": "12.05"}
    assert (copy["status"], copy["copied_from"], copy["attempt_count"], copy["errors"]) == (
        "pending",
        pk,
        0,
        [],
    )
    assert (copy["idempotency_key"], copy["queue"], copy["priority"]) == ("order-991", "billing", 9)
    assert copy["note"] == f"edited copy of job {pk} by ann: typing error"
    old = whole_row(pk)
    assert {name for name in old if old[name] != before[name]} == {"note", "superseded_by", "discarded_at"}
    assert old["note"] == f"superseded by job {outcome.made} by ann: typing error"
    assert old["superseded_by"] == outcome.made


def test_the_audit_names_what_was_changed_and_no_value(charge: None) -> None:
    outcome = edit_copy(dead(), {"order": 9007199254740993, "amount": "s3cret", "note": "x"}, actor="ann")

    row = OperatorAction.objects.get()
    assert (row.verb, row.done) == ("edit_copy", 1)
    assert row.details["changed"] == ["amount", "note"] and row.details["copy"] == outcome.made
    assert "s3cret" not in str(row.details)


def test_options(charge: None) -> None:
    outcome = edit_copy(
        dead(), PAYLOAD, actor="ann", queue="slow", priority=3, max_attempts=8, run_after=timedelta(hours=1)
    )

    assert columns(outcome.made or 0, "queue", "priority", "max_attempts") == ("slow", 3, 8)
    assert Job.objects.filter(pk=outcome.made, available_at__gt=Now()).exists()


@pytest.mark.parametrize(
    ("payload", "error", "says"),
    [
        ({"order": 1}, SignatureMismatch, "amount"),
        ({**PAYLOAD, "amuont": "1"}, SignatureMismatch, "amuont"),
        ({**PAYLOAD, "ctx": 1}, SignatureMismatch, "ctx"),
        ([1, 2], SignatureMismatch, "not an object"),
        ({**PAYLOAD, "note": "a\x00b"}, NotStorable, "payload.note"),
    ],
)
def test_a_payload_that_the_handler_cannot_take(charge: None, payload: Any, error: Any, says: str) -> None:
    pk = dead()
    with pytest.raises(error, match=says):
        edit_copy(pk, payload, actor="ann")

    assert columns(pk, "superseded_by") is None and Job.objects.count() == 1


def test_a_type_that_is_not_known_here_cannot_be_checked() -> None:
    with pytest.raises(UnknownJobType, match=KIND):
        edit_copy(dead(), PAYLOAD, actor="ann")


def test_an_option_that_makes_no_sense(charge: None) -> None:
    with pytest.raises(InvalidOption, match="priority"):
        edit_copy(dead(), PAYLOAD, actor="ann", priority=10**6)


def test_only_what_ended_without_success_is_copied(charge: None) -> None:
    [pk] = pending(job_type=KIND, payload=PAYLOAD)

    outcome = edit_copy(pk, PAYLOAD, actor="ann")

    assert outcome.result == "skipped" and Job.objects.count() == 1
    assert (
        outcome.message
        == "it is pending; only cancelled, dead, failed jobs can be copied with another payload"
    )


def test_what_has_a_copy_runs_no_more(charge: None) -> None:
    pk = dead()
    made = edit_copy(pk, {**PAYLOAD, "amount": "2"}, actor="ann").made
    [retried] = retry([pk], actor="bob")
    copied = edit_copy(pk, PAYLOAD, actor="bob")

    why = f"job {made} was made from it with another payload; go on with that one"
    assert (retried.done, retried.message, copied.done, copied.message) == (False, why, False, why)
    assert Job.objects.filter(status="pending").get().pk == made


def test_a_stale_tab_makes_no_copy(charge: None) -> None:
    pk = dead()

    outcome = edit_copy(pk, PAYLOAD, actor="ann", expected=("dead", 4))

    assert outcome.result == "conflict" and Job.objects.count() == 1


def test_a_key_whose_result_is_there_names_the_job_that_produced_it(charge: None) -> None:
    pk = dead(idempotency_key="order-991")
    JobResult.objects.create(idempotency_key="order-991", job_id=77, produced_by="w")

    outcome = edit_copy(pk, PAYLOAD, actor="ann")

    assert not outcome.done and "job 77 has produced the result" in outcome.message


def test_there_is_no_such_job(charge: None) -> None:
    assert edit_copy(10**9, PAYLOAD, actor="ann").message == "there is no such job"
    assert edit_copy(2**63, PAYLOAD, actor="ann").message == "there is no such job"


def test_what_was_hidden_from_the_editor_is_kept(charge: None) -> None:
    payload = {**PAYLOAD, "note": {"api_token": "s3cret", "to": "ann"}}
    job = running(job_type=KIND, payload=payload, max_attempts=1)
    end(job, Raised(PROBLEM, 0))
    edited = {**redacted(payload), "amount": "12.05"}
    assert edited["note"]["api_token"] == MARK

    outcome = edit_copy(job.lease.pk, edited, actor="ann")

    assert columns(outcome.made or 0, "payload") == {**payload, "amount": "12.05"}
    assert OperatorAction.objects.get().details["changed"] == ["amount"]


def test_a_mask_is_never_stored(charge: None) -> None:
    with pytest.raises(MarkLeft):
        edit_copy(dead(), {**PAYLOAD, "note": MARK}, actor="ann")

    assert Job.objects.count() == 1
