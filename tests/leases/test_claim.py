"""The claim: order, limits, filters, and no row to two callers."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connections
from django.db.models.functions import Now

from pgjobs.leases.due import outlook, suspects_waiting
from pgjobs.queue.models import Job
from tests.leases.factories import KIND, claim, claim_ids, columns, lapse, pending, running, whole_row
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def ordered_rows(queues: list[str]) -> list[int]:
    """Twelve rows per queue in an order that neither id nor insertion gives away; ids in the order of the claim."""
    rows = []
    for n, (priority, minutes) in enumerate([(p, m) for p in (100, 5, 50) for m in (1, 9, 9, 4)]):
        for queue in queues if n % 2 else reversed(queues):
            [pk] = pending(queue=queue, priority=priority, available_at=Now() - timedelta(minutes=minutes))
            rows.append(pk)
    # All of one statement share a moment; several statements do not, so equal minutes are made equal.
    for minutes in (1, 9, 4):
        same = [pk for pk in rows if columns_minutes(pk) == minutes]
        moment = columns(same[0], "available_at")
        Job.objects.filter(pk__in=same).update(available_at=moment)
    return list(Job.objects.order_by("priority", "available_at", "id").values_list("pk", flat=True))


def columns_minutes(pk: int) -> int:
    created, available = columns(pk, "created_at", "available_at")
    return round((created - available).total_seconds() / 60)


@pytest.mark.parametrize("queues", [["default"], ["a", "b", "c"]])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_order_is_priority_then_time_then_id(queues: list[str], limit: int) -> None:
    expected = ordered_rows(queues)
    got: list[int] = []
    while batch := claim_ids(limit):
        assert len(batch) <= limit
        got += batch

    assert got == expected


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_order_within_named_queues(limit: int) -> None:
    ordered_rows(["a", "b", "c"])
    expected = list(
        Job.objects.filter(queue__in="ac")
        .order_by("priority", "available_at", "id")
        .values_list("pk", flat=True)
    )
    got: list[int] = []
    while batch := claim_ids(limit, queues=["c", "a"]):
        got += batch

    assert got == expected
    assert set(Job.objects.filter(queue="b").values_list("status", flat=True)) == {"pending"}


@pytest.mark.parametrize("queues", [(), ("default",), ("default", "default"), ("none", "default", "none")])
def test_exactly_as_many_as_asked(queues: tuple[str, ...]) -> None:
    pending(20)

    assert len(claim(5, queues=queues)) == 5
    assert Job.objects.filter(status="running").count() == 5


def test_fewer_when_there_are_fewer() -> None:
    ids = pending(3)

    assert claim_ids(5) == ids
    assert claim_ids(5) == []


def test_nothing_is_asked_for_or_known() -> None:
    pending()

    assert claim(0) == [] and claim(-1) == [] and claim(5, kinds=[]) == []


def test_only_known_kinds_however_many_others_lie_before() -> None:
    pending(50, job_type="others.work", priority=1)
    [mine] = pending(priority=200)

    assert claim_ids(5) == [mine]
    assert set(Job.objects.exclude(pk=mine).values_list("status", "attempt_count")) == {("pending", 0)}


def test_future_rows_wait_even_at_a_better_priority() -> None:
    pending(10, priority=1, available_at=Now() + timedelta(hours=1))
    [due] = pending(priority=200)

    assert claim_ids(5) == [due]


def test_suspects_and_others_are_claimed_apart() -> None:
    [suspect] = pending(crash_count=1, priority=1)
    [healthy] = pending()

    assert claim_ids(5) == [healthy]
    assert claim_ids(5) == []
    assert claim_ids(5, suspects=True, queues=["elsewhere"]) == []
    assert claim_ids(5, suspects=True, queues=["default"]) == [suspect]


def test_suspects_in_order() -> None:
    last, first = pending(2, crash_count=2)
    Job.objects.filter(pk=first).update(priority=1)

    assert claim_ids(1, suspects=True) == [first]
    assert claim_ids(5, suspects=True) == [last]


@pytest.mark.parametrize("status", ["succeeded", "failed", "dead", "cancelled"])
def test_ended_rows_are_not_claimed(status: str) -> None:
    pending(status=status)

    assert claim(5) == [] and claim(5, suspects=True) == []


def test_a_lapsed_row_is_not_claimed_before_it_is_reaped() -> None:
    job = running()
    lapse(job.lease.pk)

    assert claim(5) == []


def test_what_a_claim_writes() -> None:
    [pk] = pending(payload={"n": 1}, idempotency_key="k", max_attempts=7)
    token = uuid.uuid4()
    [job] = claim(owner="worker-b", token=token, lease_seconds=45)

    row = whole_row(pk)
    assert (row["status"], row["attempt_count"], row["lease_owner"]) == ("running", 1, "worker-b")
    assert row["lease_token"] == token == job.lease.token
    assert abs(row["started_at"] - row["heartbeat_at"]) < timedelta(seconds=1)
    assert abs(row["lease_expires_at"] - row["started_at"] - timedelta(seconds=45)) < timedelta(seconds=1)
    assert (job.payload, job.attempt, job.crash_count) == ('{"n": 1}', 1, 0)
    assert (job.max_attempts, job.idempotency_key, job.already_produced) == (7, "k", False)


def test_every_claim_has_the_token_of_its_call() -> None:
    pending(4)
    first, second = claim(2), claim(2)

    assert len({job.lease.token for job in first}) == 1
    assert first[0].lease.token != second[0].lease.token


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("queues", [["default"], ["a", "b", "c", "d"]])
def test_concurrent_claims_hand_out_each_row_once(queues: list[str]) -> None:
    for n in range(50):
        pending(10, queue=queues[n % len(queues)], priority=n % 3)

    def drain(n: int) -> list[int]:
        got: list[int] = []
        try:
            # Empty claims are no end: the rest may be locked in another claim that takes fewer.
            while Job.objects.filter(status="pending").exists():
                batch = claim_ids(1 + n % 4, owner=f"worker-{n}")
                assert len(batch) <= 1 + n % 4
                got += batch
            return got
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as threads:
        got = [pk for batch in threads.map(drain, range(8)) for pk in batch]

    assert len(got) == 500 and len(set(got)) == 500
    assert set(Job.objects.values_list("status", "attempt_count")) == {("running", 1)}


@pytest.mark.django_db(transaction=True)
def test_serialization_failures_of_a_stricter_database_are_tried_again() -> None:
    """Under REPEATABLE READ a rival's commit makes SKIP LOCKED raise 40001; the claim is asked again."""
    pending(200)

    def drain(n: int) -> list[int]:
        got: list[int] = []
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET default_transaction_isolation = 'repeatable read'")
            while len(batch := claim_ids(2, owner=f"worker-{n}")):
                got += batch
            return got
        finally:
            connections.close_all()

    with ThreadPoolExecutor(3) as threads:
        got = [pk for batch in threads.map(drain, range(3)) for pk in batch]

    assert len(got) == len(set(got))
    assert set(got) == set(Job.objects.filter(status="running").values_list("pk", flat=True))


def test_seconds_until_due() -> None:
    pending()
    assert outlook(Job, kinds=[KIND], using=QUEUE) == (True, None)
    pending(available_at=Now() + timedelta(minutes=5), queue="far")
    pending(available_at=Now() + timedelta(minutes=2), priority=1)
    pending(available_at=Now() + timedelta(seconds=9), crash_count=1)

    assert outlook(Job, kinds=[KIND], using=QUEUE)[1] == pytest.approx(120, abs=5)
    assert outlook(Job, kinds=[KIND], queues=["far"], using=QUEUE)[1] == pytest.approx(300, abs=5)
    assert outlook(Job, kinds=[KIND], queues=["empty"], using=QUEUE) == (False, None)


def test_suspects_waiting() -> None:
    pending()
    assert suspects_waiting(Job, kinds=[KIND], using=QUEUE) == (0, None)
    pending(2, crash_count=1)
    pending(crash_count=1, job_type="others.work")
    pending(crash_count=1, queue="q", available_at=Now() + timedelta(minutes=1))

    due, seconds = suspects_waiting(Job, kinds=[KIND], using=QUEUE)
    assert due == 2 and seconds == pytest.approx(60, abs=5)
    assert suspects_waiting(Job, kinds=[KIND], queues=["default"], using=QUEUE) == (2, None)
    assert suspects_waiting(Job, kinds=[KIND], queues=["q"], using=QUEUE)[0] == 0


def test_future_suspects_at_a_better_priority_hide_none_that_is_due() -> None:
    pending(120, crash_count=1, priority=1, available_at=Now() + timedelta(days=1))
    pending(crash_count=1, priority=2, available_at=Now() + timedelta(minutes=1))
    pending(2, crash_count=1)

    due, seconds = suspects_waiting(Job, kinds=[KIND], using=QUEUE)

    assert due == 2 and seconds == pytest.approx(60, abs=5)


def test_anything_due() -> None:
    assert not outlook(Job, kinds=[KIND], using=QUEUE)[0]
    pending(available_at=Now() + timedelta(minutes=1))
    pending(crash_count=1)
    pending(job_type="others.work")
    assert not outlook(Job, kinds=[KIND], using=QUEUE)[0]
    pending(queue="q")

    assert outlook(Job, kinds=[KIND], using=QUEUE)[0]
    assert outlook(Job, kinds=[KIND], queues=["q"], using=QUEUE)[0]
    assert not outlook(Job, kinds=[KIND], queues=["default"], using=QUEUE)[0]
