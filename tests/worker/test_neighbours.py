"""What one job does to its process must not reach the others."""

import signal
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, transaction

from pgjobs.models import Job
from tests.jobsapp.jobs import hold, ok
from tests.jobsapp.misbehaving import finish_and_stay, use_another_database
from tests.support.waiting import wait_until
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import wait_ended, wait_for_deed

pytestmark = pytest.mark.workers


def test_a_handler_may_use_another_kind_of_database(spawn: Spawn, tmp_path: object) -> None:
    spawn(concurrency=1)
    job = use_another_database.enqueue(path=f"{tmp_path}/other.sqlite3")
    after = ok.enqueue(1)

    ended = wait_ended([job, after])

    assert {row.status for row in ended.values()} == {"succeeded"}


def test_short_jobs_do_not_wait_behind_long_ones_while_another_process_is_free(
    spawn: Spawn, gate: Callable[[str], Gate]
) -> None:
    """Short jobs are claimed ahead; when long ones take the slots, what waits goes to whoever is free."""
    door = gate("door")
    spawn(concurrency=2)
    wait_ended(ok.enqueue_many([{"value": n} for n in range(400)]))
    long = [hold.enqueue(key=f"long {n}", gate=str(door)) for n in range(2)]
    for n in range(2):
        wait_for_deed(f"long {n}:start")
    short = ok.enqueue_many([{"value": n} for n in range(10)])

    spawn(concurrency=2)
    wait_ended(short, 20)  # not when an idle process looks again, up to a minute later

    assert set(Job.objects.filter(pk__in=[job.pk for job in long]).values_list("status", flat=True)) == {
        "running"
    }
    door.open()
    wait_ended(long)


def test_a_stop_does_not_wait_for_a_row_that_is_being_finished(
    spawn: Spawn, gate: Callable[[str], Gate]
) -> None:
    """The row cannot be handed back while its own handler holds it: it is, when that session has ended."""
    door = gate("door")
    workers = spawn("--grace-seconds", "0.5", concurrency=2)
    finishing = finish_and_stay.enqueue(key="finishing", gate=str(door))
    other = hold.enqueue(key="other", gate=str(door))
    wait_for_deed("other:start")
    wait_until(lambda: sessions_in_transaction() == 1, message="the block of ctx.finish()")

    workers.signal(signal.SIGTERM)

    assert workers.wait(20) == 0, workers.output()
    rows = Job.objects.in_bulk([finishing.pk, other.pk])
    assert {(row.status, row.attempt_count, row.crash_count) for row in rows.values()} == {("pending", 0, 0)}


@pytest.mark.django_db(transaction=True)
def test_rows_that_no_claim_could_find_are_refused() -> None:
    job = ok.enqueue(1)
    with connection.cursor() as cursor:
        for column, value in [
            ("available_at", "infinity"),
            ("available_at", "-infinity"),
            ("crash_count", "-1"),
        ]:
            with pytest.raises(IntegrityError), transaction.atomic():
                cursor.execute(f"UPDATE pgjobs_job SET {column} = %s WHERE id = %s", [value, job.pk])  # noqa: S608


def sessions_in_transaction() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND state = 'idle in transaction'"
        )
        return int(cursor.fetchone()[0])
