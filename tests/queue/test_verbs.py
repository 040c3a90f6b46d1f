"""Verbs that carry what a person saw, and what they leave behind."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from pgjobs.exceptions import InvalidOption
from pgjobs.leases.renew import renew
from pgjobs.queue.audit import Actor
from pgjobs.queue.control import VerbOutcome, cancel, discard, release, restore, retry, run_now
from pgjobs.queue.models import Job, OperatorAction
from pgjobs.queue.outcomes import Failed, Raised, Succeeded
from pgjobs.queue.states import DISCARDABLE, JobStatus
from tests.leases.factories import PROBLEM, claim, claim_ids, columns, end, pending, running, whole_row
from tests.queue.test_control import in_status
from tests.support.own_database import QUEUE

pytestmark = pytest.mark.django_db

SAW: Any = ("dead", 1)


def later(**options: Any) -> int:
    """A job whose time has yet to come."""
    return pending(available_at=Now() + timedelta(hours=1), **options)[0]


@pytest.mark.parametrize("verb", [retry, discard])
def test_a_job_that_is_as_it_was_seen_is_moved(verb: Any) -> None:
    pk = in_status(JobStatus.DEAD)

    assert verb([pk], actor="ann", expected={pk: SAW})[0].result == "done"


def test_a_stale_tab_does_nothing_and_says_what_happened_meanwhile() -> None:
    pk = in_status(JobStatus.DEAD)
    retry([pk], actor="ann")
    claim(1, owner="worker-1")
    before = whole_row(pk)

    [outcome] = retry([pk], actor="bob", expected={pk: SAW})

    message = "it was dead when you looked; it is now running (attempt 2, worker-1)"
    assert outcome == VerbOutcome(pk, False, message, "running", conflict=True)
    assert outcome.result == "conflict" and whole_row(pk) == before


def test_the_same_status_in_another_attempt_is_not_what_was_seen() -> None:
    pk = in_status(JobStatus.DEAD)
    retry([pk], actor="ann")
    [job] = claim(1)
    end(job, Raised(PROBLEM, 0))
    assert columns(pk, "status") == "dead"

    [outcome] = retry([pk], actor="bob", expected={pk: SAW})

    assert outcome.conflict
    assert outcome.message == "it was dead (attempt 1) when you looked; it is now dead (attempt 2)"


def test_what_was_seen_is_compared_job_by_job() -> None:
    moved, still, unseen = (in_status(JobStatus.DEAD) for _ in range(3))
    retry([moved], actor="ann")

    outcomes = discard([moved, still, unseen], actor="bob", expected={moved: SAW, still: SAW})

    assert [outcome.result for outcome in outcomes] == ["conflict", "done", "done"]


def test_one_row_of_the_audit_for_an_operation() -> None:
    dead, fine = in_status(JobStatus.DEAD), in_status(JobStatus.SUCCEEDED)
    moved = in_status(JobStatus.DEAD)
    cancel([moved], actor="ann")
    seen = OperatorAction.objects.count()

    retry(
        [dead, fine, moved], actor=Actor("ann", "3", "admin"), reason="fixed", expected={moved: ("failed", 1)}
    )

    assert OperatorAction.objects.count() == seen + 1
    row = OperatorAction.objects.latest("id")
    assert (row.actor, row.user_id, row.via, row.verb, row.reason) == ("ann", "3", "admin", "retry", "fixed")
    assert (row.target_kind, row.target_ids, row.target_count) == ("job", [dead, fine, moved], 3)
    assert (row.done, row.skipped, row.refused) == (1, 1, 1)
    assert row.details["outcomes"][str(dead)] == "retried (was dead)"
    assert columns(dead, "note") == "retried by ann: fixed"


@pytest.mark.parametrize("verb", [retry, cancel, release, run_now, discard, restore])
def test_no_verb_is_without_its_row(verb: Any) -> None:
    verb([10**9], actor="ann", reason="why not")

    row = OperatorAction.objects.get()
    assert (row.verb, row.done, row.skipped, row.reason) == (verb.__name__, 0, 1, "why not")


def test_a_part_of_an_operation_is_recorded_by_the_whole() -> None:
    retry([in_status(JobStatus.DEAD)], actor="ann", audited=False)

    assert not OperatorAction.objects.exists()


def test_what_is_rolled_back_leaves_no_row() -> None:
    pk = in_status(JobStatus.DEAD)
    with transaction.atomic(using=QUEUE):
        retry([pk], actor="ann")
        transaction.set_rollback(True, using=QUEUE)

    assert columns(pk, "status") == "dead" and not OperatorAction.objects.exists()


def test_a_released_job_is_out_of_its_holders_hands() -> None:
    job = running(owner="worker-9")
    pk = job.lease.pk

    [outcome] = release([pk], actor="ann", reason="it hangs")

    assert outcome == VerbOutcome(pk, True, "released (was running)", "pending")
    row = whole_row(pk)
    assert (row["status"], row["lease_owner"], row["lease_token"], row["crash_count"]) == (
        "pending",
        None,
        None,
        0,
    )
    assert row["note"] == row["last_error"] == "released by ann: it hangs"
    [entry] = row["errors"]
    assert (entry["kind"], entry["worker"], entry["attempt"]) == ("released", "worker-9", 1)
    assert entry["message"] == "released by ann: it hangs"

    assert renew(Job, [job.lease], lease_seconds=60, using=QUEUE).held == set()
    assert end(job, Succeeded('"late"')) == set()
    [again] = claim(1)
    assert (again.lease.pk, again.attempt) == (pk, 2)
    assert end(job, Failed(PROBLEM)) == set() and columns(pk, "status") == "running"


@pytest.mark.parametrize("status", [status for status in JobStatus if status is not JobStatus.RUNNING])
def test_only_running_jobs_are_released(status: JobStatus) -> None:
    pk = in_status(status)
    before = whole_row(pk)

    [outcome] = release([pk], actor="ann")

    assert outcome.message == f"it is {status}; only running jobs can be released" and whole_row(pk) == before


def test_a_job_of_the_future_runs_now() -> None:
    pk = later()
    assert claim_ids(1) == []

    assert run_now([pk], actor="ann") == [VerbOutcome(pk, True, "made due (was pending)", "pending")]
    assert claim_ids(1) == [pk]


def test_running_now_what_is_due_or_not_waiting() -> None:
    done, due = in_status(JobStatus.SUCCEEDED), in_status(JobStatus.PENDING)

    messages = [outcome.message for outcome in run_now([done, due], actor="ann")]
    assert messages == [
        "it is succeeded; only pending jobs can be made due",
        "it is due already; a worker takes it when it has a free slot",
    ]


@pytest.mark.parametrize("status", JobStatus)
def test_discard_and_restore_from_every_status(status: JobStatus) -> None:
    pk = in_status(status)
    before = whole_row(pk)
    [outcome] = discard([pk], actor="ann", reason="known")

    if status not in DISCARDABLE:
        message = f"it is {status}; only cancelled, dead, failed jobs can be discarded"
        assert outcome == VerbOutcome(pk, False, message, status) and whole_row(pk) == before
        return
    assert outcome.done and outcome.status == status
    assert columns(pk, "status", "note") == (status, "discarded by ann: known")
    assert columns(pk, "discarded_at") is not None
    assert discard([pk], actor="ann")[0].message == "it is discarded already"
    assert restore([pk], actor="ann")[0].done and columns(pk, "discarded_at") is None
    assert restore([pk], actor="ann")[0].message == "it is not discarded"


def test_a_discarded_job_that_is_retried_is_back_in_sight() -> None:
    pk = in_status(JobStatus.DEAD)
    discard([pk], actor="ann")
    retry([pk], actor="ann")

    assert columns(pk, "status", "discarded_at") == ("pending", None)


def test_retry_into_another_queue_at_another_priority_and_later() -> None:
    pk = in_status(JobStatus.DEAD)
    retry([pk], actor="ann", queue="slow", priority=7, run_after=timedelta(minutes=5), more_attempts=3)

    assert columns(pk, "queue", "priority", "max_attempts") == ("slow", 7, 4)
    assert Job.objects.filter(pk=pk, available_at__gt=Now() + timedelta(minutes=4)).exists()
    details = OperatorAction.objects.get().details
    assert details["queue"] == "slow" and details["run_after"] == "0:05:00"


@pytest.mark.parametrize(
    "options",
    [{"more_attempts": 0}, {"more_attempts": True}, {"priority": 10**6}, {"queue": ""}, {"run_after": -1}],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    pk = in_status(JobStatus.DEAD)
    [name] = options
    with pytest.raises(InvalidOption, match=name):
        retry([pk], actor="ann", **options)

    assert columns(pk, "status") == "dead"


def test_ids_that_no_row_can_have() -> None:
    assert [outcome.message for outcome in retry([-1, 2**63], actor="ann")] == ["there is no such job"] * 2
