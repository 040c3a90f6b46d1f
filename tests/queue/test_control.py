"""What people may do to jobs: per job an outcome, one transaction, history kept."""

from collections.abc import Callable
from typing import Any

import pytest

from pgjobs.exceptions import InvalidOption, UnknownJobType
from pgjobs.leases.reap import reap_lapsed
from pgjobs.queue.control import VerbOutcome, cancel, retry
from pgjobs.queue.models import Job
from pgjobs.queue.outcomes import Failed, Raised, Succeeded
from pgjobs.queue.registry import registry
from pgjobs.queue.states import CANCELLABLE, RETRYABLE, TERMINAL, JobStatus
from tests.leases.factories import (
    PROBLEM,
    claim,
    claim_ids,
    columns,
    end,
    lapse,
    make_due,
    pending,
    running,
    whole_row,
)

pytestmark = pytest.mark.django_db


def in_status(status: JobStatus) -> int:
    """A job brought there by the verbs."""
    if status is JobStatus.PENDING:
        return pending()[0]
    job = running(max_attempts=1)
    match status:
        case JobStatus.SUCCEEDED:
            end(job, Succeeded())
        case JobStatus.FAILED:
            end(job, Failed(PROBLEM))
        case JobStatus.DEAD:
            end(job, Raised(PROBLEM, 0))
        case JobStatus.CANCELLED:
            cancel([job.lease.pk], actor="test")
    assert columns(job.lease.pk, "status") == status
    return job.lease.pk


@pytest.mark.parametrize("status", JobStatus)
def test_retry_from_every_status(status: JobStatus) -> None:
    pk = in_status(status)
    before = whole_row(pk)
    [outcome] = retry([pk], actor="ann", reason="fixed")

    if status in RETRYABLE:
        assert outcome == VerbOutcome(pk, True, f"retried (was {status})", "pending")
        row = whole_row(pk)
        assert (row["status"], row["note"]) == ("pending", "retried by ann: fixed")
        assert (row["completed_at"], row["completed_by"], row["errors"]) == (None, None, before["errors"])
        assert claim_ids(1) == [pk]
    else:
        message = f"it is {status}; only cancelled, dead, failed jobs can be retried"
        assert outcome == VerbOutcome(pk, False, message, status)
        assert whole_row(pk) == before


@pytest.mark.parametrize("status", JobStatus)
def test_cancel_from_every_status(status: JobStatus) -> None:
    pk = in_status(status)
    before = whole_row(pk)
    [outcome] = cancel([pk], actor="ann")

    if status in CANCELLABLE:
        assert outcome == VerbOutcome(pk, True, f"cancelled (was {status})", "cancelled")
        row = whole_row(pk)
        assert (row["status"], row["note"], row["lease_token"]) == ("cancelled", "cancelled by ann", None)
        assert row["completed_at"] is not None and claim_ids(1) == []
    else:
        message = f"it is {status}; only pending, running jobs can be cancelled"
        assert outcome == VerbOutcome(pk, False, message, status)
        assert whole_row(pk) == before


def test_every_status_is_either_terminal_or_cancellable() -> None:
    assert set(JobStatus) == TERMINAL | CANCELLABLE and not TERMINAL & CANCELLABLE


def test_a_cancelled_holder_can_change_nothing() -> None:
    job = running()
    cancel([job.lease.pk], actor="ann")
    before = whole_row(job.lease.pk)

    assert end(job, Succeeded('"late"')) == set()
    assert whole_row(job.lease.pk) == before


def test_a_spent_budget_gets_room_for_one_more_run() -> None:
    pk = in_status(JobStatus.DEAD)
    for expected in (2, 3):
        retry([pk], actor="ann")
        assert columns(pk, "max_attempts") == expected
        [job] = claim(1)
        end(job, Raised(PROBLEM, 0))
        assert columns(pk, "status") == "dead"


def test_the_budget_may_be_raised() -> None:
    pk = in_status(JobStatus.DEAD)
    retry([pk], actor="ann", max_attempts=7)

    assert columns(pk, "max_attempts") == 7


def test_the_budget_is_not_lowered() -> None:
    job = running(max_attempts=9)
    end(job, Failed(PROBLEM))
    retry([job.lease.pk], actor="ann", max_attempts=2)

    assert columns(job.lease.pk, "max_attempts") == 9


def test_a_job_that_killed_its_workers_gets_one_more_and_stays_a_suspect() -> None:
    job = running(crash_count=2, attempt_count=2)
    lapse(job.lease.pk)
    reap_lapsed(Job, using="default")
    assert columns(job.lease.pk, "status") == "dead"

    retry([job.lease.pk], actor="ann")

    assert columns(job.lease.pk, "crash_count", "max_crashes") == (3, 4)
    assert claim(1) == [] and claim_ids(1, suspects=True) == [job.lease.pk]
    lapse(job.lease.pk)
    reap_lapsed(Job, using="default")
    assert columns(job.lease.pk, "status") == "dead"


def test_a_delay_is_over_when_a_person_retries() -> None:
    job = running(max_attempts=1)
    end(job, Raised(PROBLEM, 9_999))
    make_due()
    retry([job.lease.pk], actor="ann")

    assert claim_ids(1) == [job.lease.pk]


@pytest.mark.parametrize("verb", [retry, cancel])
def test_many_at_once_each_with_its_outcome(verb: Callable[..., list[VerbOutcome]]) -> None:
    waiting, dead, gone = in_status(JobStatus.PENDING), in_status(JobStatus.DEAD), 10**9

    outcomes = verb([gone, dead, waiting, dead], actor="ann")

    assert [outcome.id for outcome in outcomes] == [waiting, dead, gone]
    assert [outcome.done for outcome in outcomes] == [verb is cancel, verb is retry, False]
    assert outcomes[2] == VerbOutcome(gone, False, "there is no such job", None)


@pytest.mark.parametrize("verb", [retry, cancel])
def test_none_at_all(verb: Callable[..., list[VerbOutcome]]) -> None:
    assert verb([], actor="ann") == []


@pytest.mark.parametrize("value", [0, -1, 10_001, True, "5", 1.5])
def test_a_budget_that_makes_no_sense(value: Any) -> None:
    pk = in_status(JobStatus.DEAD)
    with pytest.raises(InvalidOption, match="max_attempts"):
        retry([pk], actor="ann", max_attempts=value)

    assert columns(pk, "status") == "dead"


@pytest.mark.parametrize("reason", ["x" * 5_000, "a\x00b", "\ud800"])
def test_any_reason_can_be_given(reason: str) -> None:
    pk = in_status(JobStatus.PENDING)
    [outcome] = cancel([pk], actor="ann", reason=reason)

    assert outcome.done and columns(pk, "note").startswith("cancelled by ann: ")
    assert len(columns(pk, "note").encode()) <= 1_000


@pytest.mark.django_db(transaction=True)
def test_workers_are_told_once_of_jobs_sent_back(heard: Callable[[], list[str]]) -> None:
    dead = [in_status(JobStatus.DEAD) for _ in range(3)]
    heard()  # of their insertion
    retry(dead, actor="ann")
    assert heard() == [""]
    retry(dead, actor="ann")  # refused: nothing new to do
    cancel(dead, actor="ann")
    assert heard() == []


@pytest.mark.django_db(transaction=True)
def test_not_when_notifications_are_off(heard: Callable[[], list[str]], settings: Any) -> None:
    settings.PGJOBS = {"NOTIFY": False}
    dead = in_status(JobStatus.DEAD)
    heard()  # of its insertion
    retry([dead], actor="ann")

    assert heard() == []


def test_jobs_of_unknown_types_can_be_handled_too() -> None:
    [pk] = pending(job_type="gone.handler")
    with pytest.raises(UnknownJobType):
        registry.get("gone.handler")

    assert cancel([pk], actor="ann")[0].done and retry([pk], actor="ann")[0].done
