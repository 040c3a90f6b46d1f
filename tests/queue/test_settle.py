"""Settlement: each outcome to its columns, budgets, history, and whether an end has landed before."""

import uuid
from datetime import timedelta
from typing import Any

import pytest

from pgjobs.leases.reap import reap_lapsed
from pgjobs.leases.release import release
from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.queue.control import cancel
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.outcomes import (
    Abandoned,
    AlreadyExisted,
    Failed,
    Finished,
    Outcome,
    Problem,
    Raised,
    Snoozed,
    Succeeded,
)
from pgjobs.queue.settle import landed, settle, written
from pgjobs.queue.states import JobStatus
from tests.leases.factories import PROBLEM, claim, columns, end, lapse, make_due, running, whole_row
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def is_free(row: dict[str, Any]) -> bool:
    return (row["lease_owner"], row["lease_token"], row["lease_expires_at"]) == (None, None, None)


def waits(row: dict[str, Any], seconds: float) -> bool:
    """Whether the row comes back `seconds` after its attempt ended (a test takes a moment itself)."""
    late = row["available_at"] - row["heartbeat_at"] - timedelta(seconds=seconds)
    return timedelta(0) <= late < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("text", "result"), [('{"pages": 3}', {"pages": 3}), (None, None), ("null", None), ("0", 0)]
)
def test_succeeded(text: str | None, result: Any) -> None:
    job = running(owner="worker-b")
    assert end(job, Succeeded(text)) == {job.lease.pk}

    row = whole_row(job.lease.pk)
    assert is_free(row) and (row["status"], row["result"], row["completed_by"]) == (
        "succeeded",
        result,
        "worker-b",
    )
    assert row["completed_at"] >= row["started_at"]
    assert (row["attempt_count"], row["errors"], row["last_error"], row["note"]) == (1, [], "", "")


def test_success_keeps_the_history_of_earlier_attempts() -> None:
    job = running()
    end(job, Raised(PROBLEM, 0))
    [job] = claim(1)
    end(job, Succeeded("1"))

    assert columns(job.lease.pk, "status", "attempt_count", "last_error") == (
        "succeeded",
        2,
        "ValueError: no luck",
    )
    assert len(columns(job.lease.pk, "errors")) == 1


def test_failed() -> None:
    job = running(owner="worker-b")
    end(job, Failed(Problem("fail", "", "encrypted file")))

    row = whole_row(job.lease.pk)
    assert is_free(row) and (row["status"], row["note"], row["last_error"]) == (
        "failed",
        "encrypted file",
        "encrypted file",
    )
    assert row["completed_at"] is not None and row["completed_by"] == "worker-b"
    [entry] = row["errors"]
    assert (entry["kind"], entry["type"], entry["message"]) == ("fail", "", "encrypted file")
    assert "traceback" not in entry


def test_raised_with_attempts_left() -> None:
    job = running(owner="worker-b", max_attempts=3)
    end(job, Raised(PROBLEM, 90))

    row = whole_row(job.lease.pk)
    assert is_free(row) and (row["status"], row["attempt_count"], row["crash_count"]) == ("pending", 1, 0)
    assert waits(row, 90)
    assert (row["completed_at"], row["completed_by"], row["note"]) == (None, None, "")
    assert row["last_error"] == "ValueError: no luck"
    [entry] = row["errors"]
    assert (
        entry.items()
        >= {
            "attempt": 1,
            "kind": "error",
            "type": "ValueError",
            "message": "no luck",
            "traceback": "Traceback …",
            "worker": "worker-b",
        }.items()
    )
    assert entry["at"].startswith(row["heartbeat_at"].strftime("%Y-%m-%dT"))


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_the_last_attempt_ends_dead(max_attempts: int) -> None:
    job = running(max_attempts=max_attempts)
    for _ in range(max_attempts - 1):
        end(job, Raised(PROBLEM, 0))
        [job] = claim(1)
    end(job, Raised(PROBLEM, 90))

    row = whole_row(job.lease.pk)
    assert (row["status"], row["note"]) == ("dead", f"attempt budget spent: {max_attempts} of {max_attempts}")
    assert is_free(row) and row["completed_at"] is not None and row["completed_by"] == "worker-a"
    assert [entry["attempt"] for entry in row["errors"]] == list(range(1, max_attempts + 1))


@pytest.mark.parametrize(
    ("attempt", "crashes", "status"), [(2, 0, "pending"), (3, 0, "dead"), (3, 1, "pending"), (4, 1, "dead")]
)
def test_claims_that_ended_with_a_dead_worker_spend_no_attempt(
    attempt: int, crashes: int, status: str
) -> None:
    job = running(attempt_count=attempt - 1, crash_count=crashes, max_attempts=3)
    end(job, Raised(PROBLEM, 0))

    assert columns(job.lease.pk, "status", "crash_count") == (status, crashes)


@pytest.mark.parametrize(("reason", "note"), [("night", "night"), ("", "snoozed"), ("x" * 900, "x" * 500)])
def test_snoozed(reason: str, note: str) -> None:
    job = running()
    end(job, Snoozed(3_600, reason))

    row = whole_row(job.lease.pk)
    assert is_free(row) and (row["status"], row["attempt_count"], row["note"]) == ("pending", 0, note)
    assert row["errors"] == [] and waits(row, 3_600)


def test_a_job_may_snooze_for_ever_without_spending_anything() -> None:
    job = running(max_attempts=1)
    for _ in range(5):
        end(job, Snoozed(0))
        [job] = claim(1)
        assert job.attempt == 1


def test_abandoned() -> None:
    job = running()
    before = columns(job.lease.pk, "available_at")
    end(job, Abandoned())

    row = whole_row(job.lease.pk)
    assert is_free(row) and (row["status"], row["attempt_count"]) == ("pending", 0)
    assert row["available_at"] == before and "could not confirm its lease" in row["note"]


def test_finished_is_not_written_twice() -> None:
    with pytest.raises(AssertionError, match="has settled this job"):
        end(running(), Finished())


def test_a_batch_of_all_outcomes_is_one_statement(django_assert_num_queries: Any) -> None:
    outcomes: list[Outcome] = [Succeeded("1"), Failed(PROBLEM), Raised(PROBLEM, 5), Snoozed(5), Abandoned()]
    jobs = [running() for _ in outcomes]
    ended = [Ended(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]

    with django_assert_num_queries(1, connection=connection):
        moved = settle(ended[::-1], using=QUEUE)

    assert moved == {job.lease.pk for job in jobs}
    statuses = [columns(job.lease.pk, "status") for job in jobs]
    assert statuses == ["succeeded", "failed", "pending", "pending", "pending"]
    assert columns(jobs[0].lease.pk, "result") == 1


def test_results_only_are_one_statement_too(django_assert_num_queries: Any) -> None:
    jobs = [running() for _ in range(3)]

    with django_assert_num_queries(1, connection=connection):
        settle([Ended(job, Succeeded(f"{n}")) for n, job in enumerate(jobs)], using=QUEUE)

    assert [columns(job.lease.pk, "result") for job in jobs] == [0, 1, 2]


@pytest.mark.parametrize("limit", [1, 3])
def test_the_history_is_bounded(settings: Any, limit: int) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "MAX_ERRORS": limit}
    job = running(max_attempts=50)
    for _ in range(4):
        end(job, Raised(PROBLEM, 0))
        [job] = claim(1)

    attempts = [entry["attempt"] for entry in columns(job.lease.pk, "errors")]
    assert attempts == list(range(5 - limit, 5))


@pytest.mark.parametrize("edited", [{"a": 1}, "text", 5, {}])
def test_a_history_that_is_no_list_starts_anew(edited: Any) -> None:
    job = running(errors=edited)

    assert end(job, Raised(PROBLEM, 0)) == {job.lease.pk}
    assert [entry["attempt"] for entry in columns(job.lease.pk, "errors")] == [1]


def test_a_huge_error_text_is_written_as_given() -> None:
    """It is capped where it is made; here it must only not break the statement."""
    job = running()
    end(job, Raised(Problem("error", "E" * 300, "m" * 2_000, "t" * 16_000), 0))

    [entry] = columns(job.lease.pk, "errors")
    assert len(entry["traceback"]) == 16_000


def ended(job: ClaimedJob, outcome: Outcome) -> Ended:
    return Ended(job, outcome)


@pytest.mark.parametrize("outcome", [Succeeded("1"), Failed(PROBLEM), Raised(PROBLEM, 60)])
def test_an_end_that_has_landed_is_recognised(outcome: Outcome) -> None:
    """Its answer was lost with the connection, so it is sent again, moves nothing, and asks."""
    job = running()
    assert landed([ended(job, outcome)], using=QUEUE) == set()
    settle([ended(job, outcome)], using=QUEUE)
    assert settle([ended(job, outcome)], using=QUEUE) == set()

    assert landed([ended(job, outcome)], using=QUEUE) == {job.lease.pk}


def test_the_end_of_another_attempt_is_not_taken_for_ones_own() -> None:
    job = running()
    release(Job, [job.lease], using=QUEUE)
    [again] = claim(1, owner="worker-b")
    end(again, Succeeded("1"))

    assert landed([ended(job, Succeeded("1"))], using=QUEUE) == set()
    assert landed([ended(again, Succeeded("1"))], using=QUEUE) == {job.lease.pk}


def test_a_reaped_attempt_has_not_landed() -> None:
    job = running()
    lapse(job.lease.pk)
    reap_lapsed(Job, using=QUEUE)

    assert landed([ended(job, Raised(PROBLEM, 0))], using=QUEUE) == set()


def test_an_end_has_landed_even_when_the_next_attempt_has_begun() -> None:
    job = running()
    end(job, Raised(PROBLEM, 0))
    claim(1)

    # The row has moved on; what matters is that nothing is written over the next attempt.
    assert settle([ended(job, Raised(PROBLEM, 0))], using=QUEUE) == set()


def test_cancelled_is_not_landed() -> None:
    job = running()
    cancel([job.lease.pk], actor="test")

    assert landed([ended(job, Succeeded())], using=QUEUE) == set()


@pytest.mark.parametrize(
    "history", [[], {"a": 1}, "text", [5], [{"attempt": "x", "kind": "error", "worker": "worker-a"}]]
)
def test_asking_whether_it_landed_survives_an_edited_history(history: Any) -> None:
    job = running()
    end(job, Raised(PROBLEM, 60))
    Job.objects.filter(pk=job.lease.pk).update(errors=history)

    assert landed([ended(job, Raised(PROBLEM, 60))], using=QUEUE) == set()


def test_what_outcomes_come_to_without_a_database() -> None:
    job = ClaimedJob(
        lease=running().lease,
        job_type="t",
        payload="{}",
        attempt=5,
        crash_count=0,
        max_attempts=5,
        idempotency_key=None,
        awaited=False,
        already_produced=False,
    )

    assert written(ended(job, Raised(PROBLEM, 1))).status is JobStatus.DEAD
    assert written(ended(job._replace(attempt=4), Raised(PROBLEM, 1))).status is JobStatus.PENDING
    assert written(ended(job, AlreadyExisted("k"))).note == "result already existed for key 'k'"


def test_results_without_a_key_are_kept_on_the_job_only() -> None:
    end(running(), Succeeded("1"))

    assert not JobResult.objects.exists()


def test_nothing_to_settle() -> None:
    assert settle([], using=QUEUE) == set()


def test_a_delay_that_has_passed_can_be_claimed() -> None:
    job = running()
    end(job, Raised(PROBLEM, 3_600))
    assert claim(1) == []
    make_due(job.lease.pk)

    [again] = claim(1)
    assert again.lease.pk == job.lease.pk and again.lease.token != job.lease.token
    assert isinstance(again.lease.token, uuid.UUID)
