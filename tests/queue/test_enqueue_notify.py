"""The trigger that tells workers of new rows, whoever inserts them."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import transaction

from pgjobs.queue.enqueue import insert_awaited
from pgjobs.queue.models import Job
from tests.jobsapp import jobs
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db(transaction=True)

Heard = Callable[[], list[str]]
INSERT = "INSERT INTO pgjobs_job (job_type) SELECT 'another.release' FROM generate_series(1, 500)"


def execute(sql: str, params: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def raw_copy() -> None:
    with connection.cursor() as cursor, cursor.copy("COPY pgjobs_job (job_type) FROM STDIN") as copy:
        copy.write("another.release\n" * 500)


@pytest.mark.parametrize(
    "insert",
    [lambda: execute(INSERT), raw_copy, lambda: Job(job_type="another.release").save(using=QUEUE)],
    ids=["insert", "copy", "model"],
)
def test_one_for_each_statement_of_anybody(heard: Heard, insert: Callable[[], None]) -> None:
    insert()

    assert heard() == [""]


def test_not_for_updates_and_deletes(heard: Heard) -> None:
    execute(INSERT)
    assert heard() == [""]
    execute("UPDATE pgjobs_job SET priority = 1")
    execute("DELETE FROM pgjobs_job")

    assert heard() == []


def test_not_before_the_commit_and_not_without_it(heard: Heard) -> None:
    with transaction.atomic(using=QUEUE):
        execute(INSERT)
        transaction.set_rollback(True, using=QUEUE)

    assert heard() == []


def test_code_that_sends_its_own_beside_it(heard: Heard) -> None:
    """As the version before did, which may still run while the trigger is new."""
    execute("INSERT INTO pgjobs_job (job_type) VALUES ('x') RETURNING id, (SELECT pg_notify('pgjobs', ''))")

    assert heard() == [""]


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda: jobs.ok.enqueue(),
        lambda: jobs.ok.enqueue_many([{}, {}]),
        lambda: jobs.ok.enqueue_many([{}] * 500),
        lambda: insert_awaited([(jobs.ok.new(), "{}", None)], using=QUEUE),
    ],
    ids=["one", "few", "many", "awaited"],
)
def test_turned_off_for_the_transaction_that_inserts_and_no_longer(
    heard: Heard, settings: Any, enqueue: Callable[[], object]
) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "NOTIFY": False}
    enqueue()
    assert heard() == [] and Job.objects.exists()

    execute(INSERT)  # in the same session, by somebody who has not heard of that setting
    assert heard() == [""]


def test_turned_off_for_a_session(heard: Heard) -> None:
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
        other.execute("SET pgjobs.notify = 'off'")
        other.execute(INSERT)
        assert heard() == []
        other.execute("SET pgjobs.notify = 'on'")
        other.execute(INSERT)
        assert heard() == [""]
