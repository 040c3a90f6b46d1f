"""The fence: with a token that is not the row's present one, no verb changes anything."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from pgjobs import LeaseLost
from pgjobs.exceptions import PgJobsError
from pgjobs.leases.fence import hold, leave
from pgjobs.leases.release import release, release_claim
from pgjobs.leases.renew import renew
from pgjobs.leases.states import Lease
from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.queue.control import cancel
from pgjobs.queue.finish import finishing
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.outcomes import Abandoned, AlreadyExisted, Failed, Outcome, Raised, Snoozed, Succeeded
from pgjobs.queue.progress import write_progress
from pgjobs.queue.settle import settle
from tests.jobsapp.models import Effect
from tests.leases.factories import PROBLEM, claim, end, lapse, running, stranger, whole_row
from tests.support.own_database import QUEUE

OUTCOMES: list[Outcome] = [
    Succeeded('{"pages": 3}'),
    Succeeded(),
    AlreadyExisted("key"),
    Failed(PROBLEM),
    Raised(PROBLEM, 0),
    Snoozed(0),
    Abandoned(),
]


def with_lease(job: ClaimedJob, lease: Lease) -> ClaimedJob:
    return job._replace(lease=lease)


def reaped_and_claimed_again(job: ClaimedJob) -> None:
    from pgjobs.leases.reap import reap_lapsed
    from tests.leases.factories import make_due

    lapse(job.lease.pk)
    reap_lapsed(Job, using=QUEUE)
    make_due(job.lease.pk)
    [again] = claim(1, owner=job.lease.owner, suspects=True)
    assert again.lease.pk == job.lease.pk


def released_and_claimed_again(job: ClaimedJob) -> None:
    release(Job, [job.lease], using=QUEUE)
    [again] = claim(1, owner=job.lease.owner)
    assert (again.lease.pk, again.attempt) == (job.lease.pk, job.attempt)


def cancelled(job: ClaimedJob) -> None:
    [outcome] = cancel([job.lease.pk], actor="test")
    assert outcome.done


def ended_before(job: ClaimedJob) -> None:
    assert end(job, Succeeded('"first"'))


WAYS_TO_LOSE = [reaped_and_claimed_again, released_and_claimed_again, cancelled, ended_before]


@pytest.mark.django_db
@pytest.mark.parametrize("lose", WAYS_TO_LOSE)
@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=[type(outcome).__name__ for outcome in OUTCOMES])
def test_no_outcome_is_written_without_the_lease(
    outcome: Outcome, key: str | None, lose: Callable[[ClaimedJob], None]
) -> None:
    job = running(idempotency_key=key)
    lose(job)
    before, results = whole_row(job.lease.pk), list(JobResult.objects.values())

    assert end(job, outcome) == set()

    assert whole_row(job.lease.pk) == before
    assert list(JobResult.objects.values()) == results


@pytest.mark.django_db
@pytest.mark.parametrize("lose", WAYS_TO_LOSE)
def test_no_other_verb_moves_anything_either(lose: Callable[[ClaimedJob], None]) -> None:
    job = running()
    lose(job)
    before = whole_row(job.lease.pk)

    assert renew(Job, [job.lease], lease_seconds=999, using=QUEUE).held == set()
    assert release(Job, [job.lease], using=QUEUE) == set()
    assert release_claim(Job, job.lease.token, using=QUEUE) == set()
    write_progress([(job.lease, '{"done": 1}')], using=QUEUE)
    with pytest.raises(LeaseLost, match=rf"job {job.lease.pk}: its lease has passed"):
        leave(Job, job.lease, to="succeeded", using=QUEUE)
    with pytest.raises(LeaseLost), transaction.atomic(using=QUEUE):
        hold(Job, job.lease, using=QUEUE)

    assert whole_row(job.lease.pk) == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lose", WAYS_TO_LOSE)
def test_finish_does_no_work_without_the_lease(lose: Callable[[ClaimedJob], None]) -> None:
    job = running(idempotency_key="key")
    lose(job)
    before, results = whole_row(job.lease.pk), list(JobResult.objects.values())

    with pytest.raises(LeaseLost), finishing(job, "{}", using=QUEUE):
        Effect.objects.create(key="never", pid=0)

    assert whole_row(job.lease.pk) == before
    assert list(JobResult.objects.values()) == results
    assert not Effect.objects.exists()


@pytest.mark.django_db
def test_a_token_that_was_never_given_out() -> None:
    job = running()
    wrong = stranger(job)
    before = whole_row(job.lease.pk)

    for outcome in OUTCOMES:
        assert end(with_lease(job, wrong), outcome) == set()
    assert renew(Job, [wrong], lease_seconds=9, using=QUEUE).held == set()
    assert release(Job, [wrong], using=QUEUE) == set()
    write_progress([(wrong, "{}")], using=QUEUE)

    assert whole_row(job.lease.pk) == before


@pytest.mark.django_db
def test_in_a_batch_the_held_move_and_the_lost_do_not() -> None:
    jobs = [running(idempotency_key=key) for key in (None, "a", None, "b", None)]
    lost = [jobs[0], jobs[1]]
    cancel([job.lease.pk for job in lost], actor="test")
    before = [whole_row(job.lease.pk) for job in lost]

    moved = settle([Ended(job, Succeeded('"x"')) for job in jobs], using=QUEUE)

    assert moved == {job.lease.pk for job in jobs[2:]}
    assert [whole_row(job.lease.pk) for job in lost] == before
    assert list(JobResult.objects.values_list("idempotency_key", flat=True)) == ["b"]


@pytest.mark.django_db
def test_a_row_that_is_gone() -> None:
    job = running(idempotency_key="key")
    Job.objects.filter(pk=job.lease.pk).delete()

    assert end(job, Succeeded()) == set() and not JobResult.objects.exists()
    with pytest.raises(LeaseLost):
        leave(Job, job.lease, to="succeeded", using=QUEUE)


@pytest.mark.django_db
def test_leave_writes_and_clears() -> None:
    job = running()

    leave(Job, job.lease, to="succeeded", using=QUEUE, completed_at=Now(), note="by hand")

    row = whole_row(job.lease.pk)
    assert (row["status"], row["note"], row["lease_owner"]) == ("succeeded", "by hand", None)
    assert (row["lease_token"], row["lease_expires_at"]) == (None, None)


def test_lease_lost_is_an_error_of_pgjobs_that_names_the_row() -> None:
    error: Any = LeaseLost("job", 7)

    assert isinstance(error, PgJobsError) and error.pk == 7
