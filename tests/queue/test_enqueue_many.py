"""Many jobs at a time: a few are inserted by one statement, more by COPY, and nobody can tell the difference."""

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, transaction

from pgjobs import codec, job
from pgjobs.exceptions import NotStorable, SignatureMismatch
from pgjobs.queue import enqueue
from pgjobs.queue.models import Job
from tests.jobsapp import jobs
from tests.support.own_database import QUEUE, connection

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scratch")]

HOSTILE = [
    "tab\tnewline\nreturn\r\nbackslash\\ two\\\\",
    "\\N",
    "\\.",
    "\\u0000 as text",
    'quote " and \x01\x1f\x7f\x85\u2028',
    "ünïcödé 日本 🎉",
    "%s %(x)s %%",
    "'); DROP TABLE pgjobs_job; --",
    "",
]
MOMENT = dt.datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45)))


@pytest.fixture(params=["insert", "copy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test runs with any number of rows going the one way, and the other."""
    monkeypatch.setattr(enqueue, "_COPIED_FROM", 1 if request.param == "copy" else 1_000_000)
    return str(request.param)


def fetch(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def values(ids: list[int]) -> list[Any]:
    found = dict(fetch("SELECT id, payload::text FROM pgjobs_job"))
    return [codec.loads(found[pk])["value"] for pk in ids]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "a\tb\\N", "priority": -3, "max_attempts": 9, "max_crashes": 1},
        {"run_after": dt.timedelta(minutes=5)},
        {"run_after": MOMENT},
    ],
    ids=["plain", "options", "delay", "moment"],
)
def test_rows_are_those_of_single_enqueues(way: str, options: dict[str, Any]) -> None:
    single = jobs.ok.using(**options).enqueue(value=1)
    [pk] = jobs.ok.using(**options).enqueue_many([{"value": 1}])
    row = Job.objects.get(pk=pk)

    if options.get("run_after") == MOMENT:
        assert row.available_at == single.available_at == MOMENT
    else:
        assert row.available_at - row.created_at == single.available_at - single.created_at
    for name in {field.attname for field in Job._meta.concrete_fields} - {"id", "created_at", "available_at"}:
        assert getattr(row, name) == getattr(single, name), name


def test_order_and_due_time(way: str) -> None:
    given = [5, 3, 9, 1] * 60
    ids = jobs.ok.enqueue_many({"value": n} for n in given)

    assert ids == sorted(set(ids)) and values(ids) == given
    assert len(set(Job.objects.values_list("available_at", "created_at"))) == 1
    assert Job.objects.first().available_at == Job.objects.first().created_at


def test_hostile_values_survive(way: str) -> None:
    rich = [{"at": dt.date(2026, 1, 2), "n": 1e16, "$date": "no"}, [None, True, 1.5, 2**70], *HOSTILE]
    keys = iter([text or "empty" for text in HOSTILE] + ["a", "b"])

    ids = jobs.ok.enqueue_many(({"value": v} for v in rich), idempotency_key=lambda payload: next(keys))

    assert values(ids) == rich
    kept = dict(Job.objects.values_list("pk", "idempotency_key"))
    assert [kept[pk] for pk in ids] == [text or "empty" for text in HOSTILE] + ["a", "b"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"value": float("nan")}, NotStorable),
        ({"value": "\x00"}, NotStorable),
        ({"value": ["\ud800"]}, NotStorable),
        ({"unknown": 1}, SignatureMismatch),
        ("text", SignatureMismatch),
        ({1: 2}, SignatureMismatch),
    ],
)
def test_all_or_none_and_which_one_was_wrong(way: str, wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        jobs.ok.enqueue_many([{"value": 1}, {"value": 2}, wrong, {"value": 3}])

    assert caught.value.__notes__ == ["It was payload 2 of enqueue_many, counted from 0."]
    assert not Job.objects.exists()


def test_a_key_whose_words_ask_the_database_is_refused_without_asking(way: str) -> None:
    """In the middle of a COPY the connection would never answer."""

    class Row:
        def __repr__(self) -> str:
            raise AssertionError("asked")

    with pytest.raises(NotStorable, match="a key is Row, not text"):
        jobs.ok.enqueue_many([{"value": 1}, {"value": {Row(): 1}}])


class Asking(dt.datetime):
    """Asks the database when it is written."""

    def isoformat(self, *args: Any, **kwargs: Any) -> str:
        fetch("SELECT 1")
        return super().isoformat(*args, **kwargs)


class AskingDecimal(Decimal):
    def __str__(self) -> str:
        fetch("SELECT 1")
        return super().__str__()


class AskingList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        fetch("SELECT 1")
        return super().__iter__()


@pytest.mark.parametrize(
    "value",
    [Asking(2026, 1, 2, tzinfo=dt.UTC), AskingDecimal("1.5"), AskingList([1, 2]), {"deep": [Asking.max]}],
)
def test_values_may_ask_the_database_when_they_are_written(way: str, value: Any) -> None:
    """In the middle of a COPY the connection would never answer."""
    ids = jobs.ok.enqueue_many([{"value": "plain"}, {"value": value}])

    assert values(ids) == ["plain", value]


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres, MDY"])
def test_the_sessions_way_of_writing_times_does_not_matter(way: str, style: str) -> None:
    fetch(f"SET DateStyle = '{style}'")
    fetch("SET TimeZone = 'Asia/Kolkata'")  # IST, which the server reads as Israel's
    at = dt.datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=dt.UTC)

    single = jobs.ok.using(run_after=at).enqueue()
    ids = jobs.ok.using(run_after=at).enqueue_many([{"value": 1}])
    ids += jobs.ok.enqueue_many([{"value": 2}])

    assert (
        single.available_at == at and abs((dt.datetime.now(dt.UTC) - single.created_at).total_seconds()) < 60
    )
    kept = fetch(
        "SELECT extract(epoch FROM available_at)::float8, extract(epoch FROM created_at - now())::float8"
        " FROM pgjobs_job WHERE id = ANY(%s) ORDER BY id",
        ids,
    )
    assert kept[0][0] == at.timestamp() and abs(kept[1][0] - single.created_at.timestamp()) < 60
    assert all(abs(seconds) < 60 for _, seconds in kept)


def test_refused_by_the_database_and_the_callers_transaction_goes_on(way: str) -> None:
    fetch("ALTER TABLE pgjobs_job ADD CONSTRAINT none CHECK (payload ->> 'value' <> 'bad')")
    kept = jobs.ok.enqueue(value="before")
    with pytest.raises(IntegrityError, match="none"), transaction.atomic(using=QUEUE):
        jobs.ok.enqueue_many([{"value": "good"}, {"value": "bad"}])

    assert list(Job.objects.values_list("pk", flat=True)) == [kept.pk]


def test_an_error_of_a_payload_does_not_spoil_the_callers_transaction(way: str) -> None:
    with pytest.raises(NotStorable):
        jobs.ok.enqueue_many([{"value": 1}, {"value": float("inf")}])

    assert values(jobs.ok.enqueue_many([{"value": "after"}])) == ["after"]


def test_keys_may_be_made_by_queries(way: str) -> None:
    """The function runs before the server is busy with the rows."""
    [first, second] = jobs.ok.enqueue_many(
        [{"value": 1}, {"value": 2}], idempotency_key=lambda payload: f"{Job.objects.count()} {payload}"
    )

    assert Job.objects.get(pk=second).idempotency_key == "0 {'value': 2}" and first < second


def test_arguments_of_every_kind(way: str) -> None:
    @job(name="queue.work", takes_context=True)
    def work(ctx: Any, a: int, b: int = 2, **rest: Any) -> None: ...

    ids = work.enqueue_many([{"a": 1}, {"b": 3, "a": 1}, {"a": 1, "z": 9}])

    assert [Job.objects.get(pk=pk).payload for pk in ids] == [{"a": 1}, {"a": 1, "b": 3}, {"a": 1, "z": 9}]
    with pytest.raises(SignatureMismatch, match="'ctx'"):
        work.enqueue_many([{"a": 1, "ctx": 2}])


def test_how_many_statements(django_assert_num_queries: Any) -> None:
    """Single ones and small crowds take one; any larger crowd two, and the brackets of a transaction."""
    with django_assert_num_queries(1, connection=connection):
        jobs.ok.enqueue()
    with django_assert_num_queries(1, connection=connection):
        jobs.ok.enqueue_many([{}] * (enqueue._COPIED_FROM - 1))
    with django_assert_num_queries(4, connection=connection) as captured:
        jobs.ok.enqueue_many([{}] * 1_000)
    assert [query["sql"].split()[0] for query in captured if "SAVEPOINT" not in query["sql"]] == [
        "SELECT",
        "COPY",
    ]


@pytest.fixture
def restricted() -> Iterator[None]:
    """This session as a role that may read and insert jobs, but was not granted the sequence of their ids."""
    fetch("CREATE ROLE pgjobs_test_producer")
    fetch("GRANT SELECT, INSERT ON pgjobs_job TO pgjobs_test_producer")
    fetch("SET ROLE pgjobs_test_producer")
    yield
    fetch("RESET ROLE")


def test_a_role_without_the_sequence_can_enqueue_many(restricted: None) -> None:
    """INSERT needs no right to the sequence of an identity column; drawing from it for COPY does."""
    with pytest.raises(psycopg.errors.InsufficientPrivilege), transaction.atomic(using=QUEUE):
        try:
            fetch("SELECT nextval('pgjobs_job_id_seq')")
        except Exception as error:
            raise error.__cause__ or error from None

    assert values(jobs.ok.enqueue_many({"value": n} for n in range(200))) == list(range(200))


def test_connections_that_bind_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's option ``server_side_binding``, with psycopg's ``prepare_threshold``."""
    monkeypatch.setattr(connection.connection, "cursor_factory", psycopg.Cursor)
    monkeypatch.setattr(connection.connection, "prepare_threshold", 1)
    for n in range(4):
        made = jobs.ok.using(run_after=dt.timedelta(seconds=n), queue="q").enqueue(value=n)
        assert made.available_at - made.created_at == dt.timedelta(seconds=n)
        assert values([jobs.ok.enqueue(value=json.dumps(HOSTILE)).pk]) == [json.dumps(HOSTILE)]
        assert values(jobs.ok.enqueue_many([{"value": n}] * 2)) == [n, n]
    assert values(jobs.ok.enqueue_many([{"value": 7}] * 200)) == [7] * 200


@pytest.mark.django_db(transaction=True)
def test_nothing_is_left_when_copy_fails_in_the_middle(heard: Callable[[], list[str]]) -> None:
    with pytest.raises(NotStorable):
        jobs.ok.enqueue_many({"value": n if n < 900 else float("nan")} for n in range(1_000))

    assert not Job.objects.exists() and heard() == []
    assert len(jobs.ok.enqueue_many([{"value": 1}] * 1_000)) == 1_000 and heard() == [""]
