"""Enqueue: what arrives as a row, what is refused before there is one, and how often workers are told."""

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, transaction
from django.db.models.functions import Now
from django.utils import timezone

from pgjobs import codec, job
from pgjobs.connections import rows
from pgjobs.exceptions import InvalidOption, NotStorable, SignatureMismatch
from pgjobs.queue.models import Job
from tests.jobsapp import jobs
from tests.support.own_database import QUEUE, connection

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scratch")]


def stored(pk: int) -> Any:
    """The arguments that a worker will get."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload::text FROM pgjobs_job WHERE id = %s", [pk])
        [[text]] = cursor.fetchall()
        return codec.loads(text)


def test_the_row_and_the_instance() -> None:
    made = jobs.ok.using(queue="q", priority=7, max_attempts=2, max_crashes=1, idempotency_key="k").enqueue(
        value=5
    )

    row = Job.objects.get()
    assert made == row and made.pk == row.pk
    for name in [field.attname for field in Job._meta.concrete_fields]:
        assert getattr(made, name) == getattr(row, name), name
    assert (row.job_type, row.queue, row.priority, row.max_attempts) == ("jobsapp.ok", "q", 7, 2)
    assert (row.max_crashes, row.idempotency_key, row.payload, row.status) == (
        1,
        "k",
        {"value": 5},
        "pending",
    )


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kathmandu"])
def test_the_instance_tells_the_same_instants_in_whatever_zone_the_session_is(zone: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('TimeZone', %s, true)", [zone])
    made = jobs.ok.using(run_after=dt.timedelta(hours=1)).enqueue()
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM created_at)::float8 FROM pgjobs_job")
        [created] = cursor.fetchone()
    assert made.created_at.timestamp() == pytest.approx(created, abs=1e-5)
    assert made.available_at - made.created_at == dt.timedelta(hours=1)


@pytest.mark.django_db(transaction=True)
def test_a_serialization_failure_is_told_also_with_autocommit_off() -> None:
    """There is nothing to repeat: the caller's transaction is spoilt, and what spoilt it is the news."""
    transaction.set_autocommit(False, using=QUEUE)
    try:
        with pytest.raises(OperationalError, match="meant to fail"):
            rows(QUEUE, "DO $$ BEGIN RAISE 'meant to fail' USING ERRCODE = '40001'; END $$", {})
    finally:
        transaction.rollback(using=QUEUE)
        transaction.set_autocommit(True, using=QUEUE)


def test_the_instance_is_usable() -> None:
    made = jobs.ok.enqueue(value=5)
    made.refresh_from_db()

    assert str(made) == f"job {made.pk} (jobsapp.ok)" and not made._state.adding


def test_arguments_are_stored_by_name() -> None:
    @job(name="queue.work")
    def work(a: int, b: int = 2, *, c: int = 3, **rest: int) -> None: ...

    assert stored(work.enqueue(1).pk) == {"a": 1}
    assert stored(work.enqueue(1, 5).pk) == {"a": 1, "b": 5}
    assert stored(work.enqueue(a=1, c=4, d=9, rest=8).pk) == {"a": 1, "c": 4, "d": 9, "rest": 8}


def test_defaults_are_left_to_the_handler() -> None:
    """A default that changes with a new version of the code applies to jobs that wait."""
    assert stored(jobs.ok.enqueue().pk) == {}


WRONG_CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "missing a required argument: 'a'"),
    ((1, 2, 3), {}, "too many positional arguments"),
    ((1,), {"a": 1}, "multiple values for argument 'a'"),
    ((1,), {"z": 1}, "unexpected keyword argument 'z'"),
]


@pytest.mark.parametrize(("args", "kwargs", "problem"), WRONG_CALLS)
def test_a_call_that_does_not_fit_is_refused_and_nothing_is_inserted(
    args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    @job(name="queue.work")
    def work(a: int, b: int = 2) -> None: ...

    with pytest.raises(SignatureMismatch) as caught:
        work.enqueue(*args, **kwargs)

    assert str(caught.value).startswith("queue.work(a: int, b: int = 2) cannot be called this way")
    assert problem in str(caught.value) and not Job.objects.exists()


def test_the_context_is_no_argument() -> None:
    @job(name="queue.work", takes_context=True)
    def work(ctx: Any, a: int, **rest: Any) -> None: ...

    assert stored(work.enqueue(1).pk) == {"a": 1}
    with pytest.raises(SignatureMismatch, match="'ctx'"):
        work.enqueue(1, ctx=2)  # would give the worker two values for one parameter


UNSTORABLE = [float("nan"), "\x00", "\ud800", {1: 2}, {1, 2}, b"x", object(), 10**5_000]


@pytest.mark.parametrize("value", UNSTORABLE, ids=range(len(UNSTORABLE)))
def test_what_cannot_be_stored_is_refused_and_nothing_is_inserted(value: Any) -> None:
    with pytest.raises(NotStorable, match=r"^payload\.value"):
        jobs.ok.enqueue(value)

    assert not Job.objects.exists()


def test_the_size_of_a_payload_is_bounded(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "MAX_PAYLOAD_BYTES": 100}
    room = 100 - len(json.dumps({"value": ""}, separators=(",", ":")))

    assert stored(jobs.ok.enqueue("x" * room).pk) == {"value": "x" * room}
    with pytest.raises(
        NotStorable, match=r"101 bytes of JSON are more than the limit of 100.*MAX_PAYLOAD_BYTES"
    ):
        jobs.ok.enqueue("x" * (room + 1))
    assert Job.objects.count() == 1


def test_rich_values_survive() -> None:
    value = {"at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "price": Decimal("1.50"), "n": 1e16, "$date": "no"}

    assert stored(jobs.ok.enqueue(value).pk) == {"value": value}


def test_a_delay_is_added_by_the_databases_clock() -> None:
    made = jobs.ok.using(run_after=dt.timedelta(minutes=5)).enqueue()

    assert made.available_at - made.created_at == dt.timedelta(minutes=5)


def test_a_moment_is_kept_to_the_microsecond() -> None:
    zone = dt.timezone(dt.timedelta(hours=5, minutes=45))
    moment = dt.datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=zone)

    made = jobs.ok.using(run_after=moment).enqueue()

    assert made.available_at == moment == Job.objects.get().available_at


def test_a_moment_that_has_passed_means_at_once() -> None:
    jobs.ok.using(run_after=timezone.now() - dt.timedelta(days=1)).enqueue()

    assert Job.objects.filter(available_at__lte=Now()).exists()


@pytest.mark.django_db(transaction=True)
def test_nothing_is_left_of_a_transaction_that_was_rolled_back(heard: Callable[[], list[str]]) -> None:
    with transaction.atomic(using=QUEUE):
        jobs.ok.enqueue()
        jobs.ok.enqueue_many([{}, {}])
        transaction.set_rollback(True, using=QUEUE)

    assert not Job.objects.exists() and heard() == []


async def from_a_coroutine() -> tuple[Job, list[int]]:
    return await jobs.ok.using(queue="a").aenqueue(value=1), await jobs.ok.aenqueue_many(
        [{"value": 2}], idempotency_key=lambda payload: f"key {payload['value']}"
    )


@pytest.mark.django_db(transaction=True)
def test_from_async_code() -> None:
    made, [pk] = async_to_sync(from_a_coroutine)()

    assert (stored(made.pk), stored(pk)) == ({"value": 1}, {"value": 2})
    assert made.queue == "a" and Job.objects.get(pk=pk).idempotency_key == "key 2"


def test_many_in_the_order_given() -> None:
    payloads = [{"value": n} for n in (5, 3, 9, 1)]
    ids = jobs.ok.enqueue_many(iter(payloads))

    assert ids == sorted(ids) and [stored(pk) for pk in ids] == payloads
    assert len(set(Job.objects.values_list("available_at", flat=True))) == 1


def test_none_at_all() -> None:
    assert jobs.ok.enqueue_many([]) == [] and not Job.objects.exists()


def test_more_than_one_statement_holds() -> None:
    ids = jobs.ok.enqueue_many({"value": n} for n in range(5_003))

    assert len(ids) == len(set(ids)) == 5_003
    values = dict(Job.objects.values_list("pk", "payload"))
    assert [values[pk]["value"] for pk in ids] == list(range(5_003))


@pytest.mark.parametrize("wrong", [{"value": float("nan")}, {"unknown": 1}, "text", None, {1: 2}])
def test_many_are_all_or_none(wrong: Any) -> None:
    with pytest.raises((NotStorable, SignatureMismatch)):
        jobs.ok.enqueue_many([{"value": 1}, {"value": 2}, wrong])

    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_many_are_all_or_none_across_statements(heard: Callable[[], list[str]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE pgjobs_job ADD CONSTRAINT no_5001 CHECK (payload ->> 'value' <> '5001')")
    try:
        with pytest.raises(Exception, match="no_5001"):
            jobs.ok.enqueue_many({"value": n} for n in range(5_003))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE pgjobs_job DROP CONSTRAINT no_5001")

    assert not Job.objects.exists() and heard() == []


def test_keys_of_many_are_made_from_the_arguments() -> None:
    ids = jobs.ok.enqueue_many(
        [{"value": n} for n in (1, 2)], idempotency_key=lambda payload: f"v{payload['value']}"
    )

    assert [Job.objects.get(pk=pk).idempotency_key for pk in ids] == ["v1", "v2"]


@pytest.mark.parametrize("key", ["", "k" * 256, None, 5])
def test_a_key_that_cannot_be_kept(key: Any) -> None:
    with pytest.raises(InvalidOption, match="idempotency_key"):
        jobs.ok.enqueue_many([{}], idempotency_key=lambda payload: key)

    assert not Job.objects.exists()


def test_many_jobs_do_not_share_a_key() -> None:
    with pytest.raises(InvalidOption, match="many jobs cannot share one key"):
        jobs.ok.using(idempotency_key="k").enqueue_many([{}, {}])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "call",
    [
        lambda: jobs.ok.enqueue(),
        lambda: jobs.ok.enqueue_many([{}, {}, {}]),
        lambda: jobs.ok.enqueue_many({} for _ in range(10_001)),
        lambda: jobs.ok.using(run_after=dt.timedelta(0)).enqueue(),
    ],
)
def test_one_notification_per_call_with_nothing_in_it(
    heard: Callable[[], list[str]], call: Callable[[], object]
) -> None:
    call()

    assert heard() == [""]


@pytest.mark.django_db(transaction=True)
def test_workers_are_told_when_the_transaction_commits(heard: Callable[[], list[str]]) -> None:
    with transaction.atomic(using=QUEUE):
        for _ in range(5):
            jobs.ok.enqueue()
    assert heard() == [""]  # alike notifications of one transaction are one


@pytest.mark.django_db(transaction=True)
def test_workers_are_told_of_later_jobs_too(heard: Callable[[], list[str]]) -> None:
    """An idle worker has to learn when it must look again."""
    jobs.ok.using(run_after=dt.timedelta(hours=1)).enqueue()
    assert heard() == [""]
    jobs.ok.using(run_after=timezone.now() + dt.timedelta(hours=1)).enqueue_many([{}, {}])
    assert heard() == [""]


@pytest.mark.django_db(transaction=True)
def test_notifications_can_be_turned_off(heard: Callable[[], list[str]], settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "NOTIFY": False}
    jobs.ok.enqueue()
    jobs.ok.enqueue_many([{}, {}])

    assert heard() == [] and Job.objects.count() == 3
