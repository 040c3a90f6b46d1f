"""Renew and release: the holder's two words about rows that it keeps or hands back."""

import json
import uuid
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from pgjobs.leases.release import release, release_claim, release_owner
from pgjobs.leases.renew import renew
from pgjobs.queue.models import Job
from pgjobs.queue.progress import write_progress
from tests.leases.factories import claim, claim_ids, columns, lapse, pending, running, stranger, whole_row
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db

RELEASED = {"status": "pending", "lease_owner": None, "lease_token": None, "lease_expires_at": None}


def test_renewal_moves_the_end_and_the_heartbeat_and_nothing_else() -> None:
    job = running()
    before = whole_row(job.lease.pk)

    assert renew(Job, [job.lease], lease_seconds=500, using=QUEUE).held == {job.lease.pk}

    after = whole_row(job.lease.pk)
    assert after["heartbeat_at"] > before["heartbeat_at"]
    assert abs(after["lease_expires_at"] - after["heartbeat_at"] - timedelta(seconds=500)) < timedelta(
        seconds=1
    )
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"heartbeat_at", "lease_expires_at"}


def test_a_lapsed_lease_that_nobody_took_is_renewed() -> None:
    """The token decides, not the clock: a slow heartbeat is no reason to throw work away."""
    job = running()
    lapse(job.lease.pk)

    assert renew(Job, [job.lease], lease_seconds=60, using=QUEUE).held == {job.lease.pk}
    assert Job.objects.filter(pk=job.lease.pk, lease_expires_at__gt=Now()).exists()


def test_renewal_tells_the_lost_from_the_held() -> None:
    pending(3)
    held, lost, gone = claim(3)
    release(Job, [lost.lease], using=QUEUE)
    Job.objects.filter(pk=gone.lease.pk).delete()

    asked = [held.lease, lost.lease, gone.lease, stranger(held)]
    assert renew(Job, asked, lease_seconds=60, using=QUEUE).held == {held.lease.pk}


def test_nothing_held_needs_no_statement(django_assert_num_queries: object) -> None:
    with django_assert_num_queries(0, connection=connection):  # type: ignore[operator]
        assert renew(Job, [], lease_seconds=60, using=QUEUE).held == set()
        assert release(Job, [], using=QUEUE) == set()


def test_released_rows_are_claimable_at_once_and_unspent() -> None:
    pending(2, payload={"n": 1})
    jobs = claim(2)

    assert release(Job, [job.lease for job in jobs], using=QUEUE) == {job.lease.pk for job in jobs}

    for job in jobs:
        row = whole_row(job.lease.pk)
        assert row.items() >= RELEASED.items()
        assert (row["attempt_count"], row["crash_count"], row["errors"], row["last_error"]) == (0, 0, [], "")
    [again] = claim(1)
    assert (again.lease.pk, again.attempt) == (jobs[0].lease.pk, 1)


def test_release_by_token_finds_a_claim_whose_reply_was_lost() -> None:
    lost, other = uuid.uuid4(), uuid.uuid4()
    ids = pending(4)
    claim(2, token=lost)
    claim(2, token=other)

    assert release_claim(Job, lost, using=QUEUE) == set(ids[:2])
    assert release_claim(Job, lost, using=QUEUE) == set()
    assert set(Job.objects.filter(status="running").values_list("pk", flat=True)) == set(ids[2:])


def test_release_by_owner_takes_all_of_one_worker_and_none_of_another() -> None:
    ids = pending(4)
    claim(2, owner="worker-a"), claim(1, owner="worker-a"), claim(1, owner="worker-b")

    assert release_owner(Job, "worker-a", using=QUEUE) == set(ids[:3])
    assert columns(ids[3], "status", "lease_owner") == ("running", "worker-b")


def test_a_counter_that_somebody_set_to_zero_does_not_go_below() -> None:
    job = running()
    Job.objects.filter(pk=job.lease.pk).update(attempt_count=0)

    assert release(Job, [job.lease], using=QUEUE)
    assert columns(job.lease.pk, "attempt_count") == 0


def test_progress_of_several_jobs_in_one_statement(django_assert_num_queries: object) -> None:
    pending(2)
    first, second = claim(2)
    told = [(first.lease, json.dumps({"done": 1})), (second.lease, json.dumps({"done": 2}))]

    with django_assert_num_queries(1, connection=connection):  # type: ignore[operator]
        write_progress(told, using=QUEUE)

    assert [columns(job.lease.pk, "progress") for job in (first, second)] == [{"done": 1}, {"done": 2}]


def test_a_stale_row_of_the_same_worker_is_not_renewed_by_its_new_claim() -> None:
    """The same process claims the same row again: only the token tells the two attempts apart."""
    old = running()
    release(Job, [old.lease], using=QUEUE)
    [new] = claim(1)
    assert new.lease.pk == old.lease.pk

    assert renew(Job, [old.lease], lease_seconds=60, using=QUEUE).held == set()
    assert release(Job, [old.lease], using=QUEUE) == set()
    assert renew(Job, [new.lease], lease_seconds=60, using=QUEUE).held == {new.lease.pk}


def test_released_in_the_middle_of_the_order_it_keeps_its_place() -> None:
    ids = pending(3)
    jobs = claim(3)
    release(Job, [jobs[1].lease, jobs[0].lease], using=QUEUE)

    assert claim_ids(5) == ids[:2]
