"""Two verbs on one row, made to meet: one stands in its open transaction while the other arrives."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from pgjobs import LeaseLost
from pgjobs.leases.reap import reap_lapsed
from pgjobs.leases.release import release
from pgjobs.leases.renew import renew
from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.queue.control import cancel, retry
from pgjobs.queue.finish import finishing
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.outcomes import Outcome, Raised, Succeeded
from pgjobs.queue.progress import write_progress
from pgjobs.queue.settle import settle, still_held
from tests.jobsapp.models import Effect
from tests.leases.factories import PROBLEM, claim, claim_ids, columns, end, lapse, pending, running
from tests.leases.sessions import Paused, Session, can_lock, sessions, transaction_open
from tests.support.own_database import QUEUE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def both(transactional_db: None) -> Iterator[list[Session]]:
    with sessions("first", "second") as opened:
        yield opened


@pytest.fixture
def first(both: list[Session]) -> Session:
    return both[0]


@pytest.fixture
def second(both: list[Session]) -> Session:
    return both[1]


def reap() -> list[int]:
    reaped = reap_lapsed(Job, using=QUEUE)
    return [*reaped.requeued, *reaped.exhausted]


def finish(job: ClaimedJob, pause: Callable[[], None] = lambda: None) -> None:
    with finishing(job, '"done"', using=QUEUE):
        Effect.objects.create(key=f"job {job.lease.pk}", pid=0)
        pause()


def test_settlement_comes_first_and_the_reaper_passes_by(first: Session, second: Session) -> None:
    job = running()
    lapse(job.lease.pk)
    settling = transaction_open(first, lambda: end(job, Succeeded("1")))

    assert second.run(reap) == []  # without waiting

    assert settling.finish() == {job.lease.pk}
    assert second.run(reap) == []
    assert columns(job.lease.pk, "status", "crash_count") == ("succeeded", 0)


def test_the_reaper_comes_first_and_the_settlement_is_refused(first: Session, second: Session) -> None:
    job = running()
    lapse(job.lease.pk)
    reaping = transaction_open(first, reap)
    assert passed_by(second, job, Succeeded("1"))  # without waiting

    assert reaping.finish() == [job.lease.pk]
    assert second.run(end, job, Succeeded("1")) == set() and not held_now(job)
    assert columns(job.lease.pk, "status", "crash_count", "result") == ("pending", 1, None)


def test_a_reaper_that_gives_up_leaves_the_row_to_the_settlement(first: Session, second: Session) -> None:
    job = running()
    lapse(job.lease.pk)

    def reap_in_vain(pause: Callable[[], None]) -> None:
        with transaction.atomic(using=QUEUE):
            reap()
            pause()
            transaction.set_rollback(True, using=QUEUE)

    reaping = Paused(first, reap_in_vain)
    assert passed_by(second, job, Succeeded("1"))
    reaping.finish()

    assert second.run(end, job, Succeeded("1")) == {job.lease.pk}
    assert columns(job.lease.pk, "status", "crash_count") == ("succeeded", 0)


def test_renewal_passes_by_a_row_that_is_being_finished(first: Session, second: Session) -> None:
    """One slow block of ctx.finish() must not cost the worker its other leases."""
    finished, other = running(), running()
    before = columns(finished.lease.pk, "heartbeat_at"), columns(other.lease.pk, "heartbeat_at")
    finishing_now = Paused(first, lambda pause: finish(finished, pause))

    alive = second.run(renew, Job, [finished.lease, other.lease], lease_seconds=60, using=QUEUE).held

    assert alive == {finished.lease.pk, other.lease.pk}
    assert columns(finished.lease.pk, "heartbeat_at") == before[0]
    assert columns(other.lease.pk, "heartbeat_at") > before[1]
    finishing_now.finish()
    assert second.run(renew, Job, [finished.lease], lease_seconds=60, using=QUEUE).held == set()


def test_progress_passes_by_a_row_that_is_being_finished(first: Session, second: Session) -> None:
    finished, other = running(), running()
    finishing_now = Paused(first, lambda pause: finish(finished, pause))

    told = [(finished.lease, '{"done": 1}'), (other.lease, '{"done": 2}')]
    second.run(write_progress, told, using=QUEUE)

    finishing_now.finish()
    assert columns(finished.lease.pk, "progress") is None
    assert columns(other.lease.pk, "progress") == {"done": 2}


def test_a_row_that_is_being_finished_is_not_reaped_however_late(first: Session, second: Session) -> None:
    job = running()
    lapse(job.lease.pk)
    finishing_now = Paused(first, lambda pause: finish(job, pause))

    assert second.run(reap) == []

    finishing_now.finish()
    assert columns(job.lease.pk, "status") == "succeeded"
    assert Effect.objects.count() == 1


@pytest.mark.parametrize(("way", "status"), [("reap", "pending"), ("cancel", "cancelled")])
def test_another_comes_first_and_finish_does_no_work(
    first: Session, second: Session, way: str, status: str
) -> None:
    job = running()
    lapse(job.lease.pk)
    taking = transaction_open(
        first, reap if way == "reap" else lambda: cancel([job.lease.pk], actor="somebody")
    )
    finishing_now = second.start(finish, job)
    second.wait_blocked()
    taking.finish()

    with pytest.raises(LeaseLost):
        finishing_now.result(30)
    assert columns(job.lease.pk, "status") == status and not Effect.objects.exists()


def test_a_renewal_under_way_keeps_the_reaper_off(first: Session, second: Session) -> None:
    job = running()
    lapse(job.lease.pk)
    renewing = transaction_open(first, lambda: renew(Job, [job.lease], lease_seconds=60, using=QUEUE))

    assert second.run(reap) == []

    assert renewing.finish().held == {job.lease.pk}
    assert second.run(reap) == []
    assert columns(job.lease.pk, "status") == "running"


def test_the_reaper_comes_first_and_the_renewal_does_not_revive(first: Session, second: Session) -> None:
    job = running()
    lapse(job.lease.pk)
    reaping = transaction_open(first, reap)
    # Not yet committed, so the holder still counts as one; it neither waits nor writes.
    assert second.run(renew, Job, [job.lease], lease_seconds=60, using=QUEUE).held == {job.lease.pk}
    reaping.finish()

    assert second.run(renew, Job, [job.lease], lease_seconds=60, using=QUEUE).held == set()
    assert columns(job.lease.pk, "status", "lease_token") == ("pending", None)


def test_cancel_comes_first_and_the_settlement_is_refused(first: Session, second: Session) -> None:
    job = running()
    cancelling = transaction_open(first, lambda: cancel([job.lease.pk], actor="somebody"))
    assert passed_by(second, job, Succeeded("1"))

    [outcome] = cancelling.finish()
    assert outcome.done and second.run(end, job, Succeeded("1")) == set() and not held_now(job)
    assert columns(job.lease.pk, "status", "note", "result") == ("cancelled", "cancelled by somebody", None)


@pytest.mark.parametrize("way", ["settle", "finish"])
def test_success_comes_first_and_cancel_says_so(first: Session, second: Session, way: str) -> None:
    job = running()
    if way == "settle":
        ending = transaction_open(first, lambda: end(job, Succeeded("1")))
    else:
        ending = Paused(first, lambda pause: finish(job, pause))
    cancelling = second.start(cancel, [job.lease.pk], actor="somebody")
    second.wait_blocked()
    ending.finish()

    [outcome] = cancelling.result(30)
    assert (outcome.done, outcome.status) == (False, "succeeded")
    assert "it is succeeded; only pending, running jobs can be cancelled" in outcome.message
    assert columns(job.lease.pk, "status") == "succeeded"


def test_release_comes_first_and_the_reaper_counts_no_crash(first: Session, second: Session) -> None:
    job = running()
    lapse(job.lease.pk)
    releasing = transaction_open(first, lambda: release(Job, [job.lease], using=QUEUE))

    assert second.run(reap) == []

    assert releasing.finish() == {job.lease.pk}
    assert columns(job.lease.pk, "status", "attempt_count", "crash_count") == ("pending", 0, 0)


def test_the_reaper_comes_first_and_release_gives_nothing_back_twice(first: Session, second: Session) -> None:
    job = running()
    lapse(job.lease.pk)
    reaping = transaction_open(first, reap)
    assert second.run(release, Job, [job.lease], using=QUEUE) == set()  # without waiting
    reaping.finish()

    assert second.run(release, Job, [job.lease], using=QUEUE) == set()
    assert columns(job.lease.pk, "status", "attempt_count", "crash_count") == ("pending", 1, 1)


def test_two_reapers_share_the_work(first: Session, second: Session) -> None:
    pending(6)
    ids = [job.lease.pk for job in claim(6)]
    lapse(*ids)
    reaping = transaction_open(first, lambda: reap_lapsed(Job, using=QUEUE, limit=3).requeued)

    assert sorted(second.run(reap)) == ids[3:]

    assert sorted(reaping.finish()) == ids[:3]
    assert set(Job.objects.values_list("crash_count", flat=True)) == {1}


def test_two_claims_pass_each_other_by(first: Session, second: Session) -> None:
    ids = pending(4)
    claiming = transaction_open(first, lambda: claim_ids(2, owner="worker-a"))

    assert second.run(claim_ids, 2, owner="worker-b") == ids[2:]

    assert claiming.finish() == ids[:2]


def test_cancel_meets_a_claim_under_way(first: Session, second: Session) -> None:
    """The claim wins; cancel waits for it and then takes the lease away again."""
    [pk] = pending()
    claiming = transaction_open(first, lambda: claim(1))
    cancelling = second.start(cancel, [pk], actor="somebody")
    second.wait_blocked()
    [job] = claiming.finish()

    [outcome] = cancelling.result(30)
    assert (outcome.done, outcome.message) == (True, "cancelled (was running)")
    assert end(job, Succeeded()) == set()


def test_two_people_retry_one_job(first: Session, second: Session) -> None:
    job = running(max_attempts=1)
    end(job, Raised(PROBLEM, 0))
    one = transaction_open(first, lambda: retry([job.lease.pk], actor="one"))
    two = second.start(retry, [job.lease.pk], actor="two")
    second.wait_blocked()

    [done], [refused] = one.finish(), two.result(30)
    assert done.done and (refused.done, refused.status) == (False, "pending")
    assert columns(job.lease.pk, "note", "max_attempts") == ("retried by one", 2)


def passed_by(session: Session, job: ClaimedJob, outcome: Outcome) -> bool:
    """Whether a settlement, without waiting, leaves a locked row where it is and knows that it is still held."""
    return session.run(end, job, outcome) == set() and held_now(job)


def held_now(job: ClaimedJob) -> bool:
    """Whether the worker would try its settlement again."""
    return still_held([Ended(job, Succeeded())], using=QUEUE) == {job.lease.pk}


def awaited_and_keyed() -> list[ClaimedJob]:
    return [running(awaited=True), running(idempotency_key="k")]


MANY: dict[str, tuple[Callable[[], list[ClaimedJob]], Callable[[list[ClaimedJob]], Any]]] = {
    "cancel": (
        lambda: [running(), running()],
        lambda jobs: cancel([job.lease.pk for job in jobs], actor="somebody"),
    ),
    "retry": (
        lambda: [running(), running()],
        lambda jobs: retry([job.lease.pk for job in jobs], actor="somebody"),
    ),
}


SETTLED: dict[str, tuple[Callable[[], list[ClaimedJob]], Callable[[list[ClaimedJob]], Any]]] = {
    "settle": (
        lambda: [running(), running()],
        lambda jobs: settle([Ended(job, Succeeded()) for job in jobs], using=QUEUE),
    ),
    "settle mixed outcomes": (
        lambda: [running(), running()],
        lambda jobs: settle([Ended(job, Raised(PROBLEM, 0)) for job in jobs], using=QUEUE),
    ),
    "settle keyed": (
        lambda: [running(idempotency_key="z"), running(idempotency_key="a")],
        lambda jobs: settle([Ended(job, Succeeded()) for job in jobs], using=QUEUE),
    ),
    "settle awaited and keyed": (
        awaited_and_keyed,
        lambda jobs: settle([Ended(job, Succeeded()) for job in jobs], using=QUEUE),
    ),
}


@pytest.mark.parametrize("name", SETTLED)
def test_a_settlement_passes_by_a_locked_row_and_comes_back(
    name: str, first: Session, second: Session
) -> None:
    """One transaction that holds a row for long must not hold up the other ends of a whole process."""
    make, act = SETTLED[name]
    locked, free = make()
    holding = transaction_open(first, lambda: Job.objects.select_for_update().get(pk=locked.lease.pk))

    assert second.run(act, [locked, free]) == {free.lease.pk}
    assert held_now(locked) and not held_now(free)

    holding.finish()
    assert second.run(act, [locked]) == {locked.lease.pk}


@pytest.mark.parametrize("name", MANY)
def test_rows_are_locked_in_the_order_of_id(name: str, first: Session, second: Session) -> None:
    """Whoever waits for a row holds none with a higher id, so no circle of waiting can close."""
    make, act = MANY[name]
    low, high = make()
    holding = transaction_open(first, lambda: Job.objects.select_for_update().get(pk=low.lease.pk))

    acting = second.start(act, [high, low])  # given in the wrong order
    second.wait_blocked()

    assert can_lock(high.lease.pk), f"{name} holds the higher row while it waits for the lower"
    holding.finish()
    assert acting.result(30)


def test_a_key_that_somebody_is_storing_holds_up_only_its_own_job(first: Session, second: Session) -> None:
    low, high = running(idempotency_key="b"), running(idempotency_key="a")
    third = running(idempotency_key="a")
    storing = transaction_open(first, lambda: end(third, Succeeded('"third"')))

    # It waits for "a" only for a moment, and then settles each by itself.
    both = [Ended(low, Succeeded()), Ended(high, Succeeded())]
    assert second.run(settle, both, using=QUEUE) == {low.lease.pk}

    storing.finish()
    assert second.run(settle, both[1:], using=QUEUE) == {high.lease.pk}
    assert dict(JobResult.objects.values_list("idempotency_key", "job_id")) == {
        "a": third.lease.pk,
        "b": low.lease.pk,
    }
