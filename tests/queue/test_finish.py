"""``ctx.finish``: effects and success in one commit, or neither; and never a success that was not committed."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from pgjobs import LeaseLost
from pgjobs.exceptions import AlreadyProduced, CommitLost, PgJobsError
from pgjobs.queue.attempts import ClaimedJob
from pgjobs.queue.finish import finishing
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.outcomes import Succeeded
from tests.jobsapp import jobs
from tests.jobsapp.models import Effect
from tests.leases.factories import columns, end, running, whole_row
from tests.leases.sessions import Paused, sessions
from tests.support.own_database import QUEUE, connection
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def land(key: str = "landed") -> None:
    Effect.objects.create(key=key, pid=0)


def statement(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def nothing_happened(job: ClaimedJob) -> bool:
    connection.close()  # look with a fresh session: what another one sees is what was committed
    return (
        columns(job.lease.pk, "status", "lease_token") == ("running", job.lease.token)
        and not Effect.objects.exists()
        and not JobResult.objects.exists()
    )


def test_effects_follow_up_and_success_come_together() -> None:
    job = running(owner="worker-b", idempotency_key="k")
    with sessions("elsewhere") as [other], finishing(job, '{"pages": 2}', using=QUEUE):
        land()
        jobs.ok.enqueue()
        assert other.run(lambda: (Effect.objects.exists(), Job.objects.count())) == (False, 1)

    row = whole_row(job.lease.pk)
    assert (row["status"], row["result"], row["completed_by"]) == ("succeeded", {"pages": 2}, "worker-b")
    assert row["completed_at"] >= row["started_at"] and row["lease_token"] is None
    assert Effect.objects.count() == 1 and Job.objects.filter(job_type="jobsapp.ok").exists()
    produced = JobResult.objects.get()
    assert (produced.job_id, produced.produced_by, produced.result) == (
        job.lease.pk,
        "worker-b",
        {"pages": 2},
    )


def test_without_a_result() -> None:
    job = running()
    with finishing(job, None, using=QUEUE):
        land()

    assert columns(job.lease.pk, "status", "result") == ("succeeded", None)


def test_a_server_that_is_away_before_the_first_statement_is_waited_for() -> None:
    """A handler's connection is a new one for each job: ctx.finish() may be the first that asks for it."""
    job = running()
    port = connection.settings_dict["PORT"]
    connection.settings_dict["PORT"] = "1"
    connection.close()
    tries = []

    def come_back() -> bool:
        tries.append(1)
        connection.settings_dict["PORT"] = port
        return True

    with finishing(job, "1", using=QUEUE, keep_trying=come_back):
        land()

    assert tries == [1] and columns(job.lease.pk, "status") == "succeeded"


def test_a_session_that_a_handler_made_read_only_is_replaced() -> None:
    job = running()
    statement("SET default_transaction_read_only = on")

    with finishing(job, "1", using=QUEUE):
        land()

    assert columns(job.lease.pk, "status") == "succeeded"


def test_autocommit_off_in_the_settings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    job = running()
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)

    with pytest.raises(PgJobsError, match="turn autocommit on"), finishing(job, "1", using=QUEUE):
        land()


def test_an_exception_in_the_block_undoes_all_and_keeps_the_lease() -> None:
    job = running(idempotency_key="k")
    with pytest.raises(ZeroDivisionError), finishing(job, "1", using=QUEUE):
        land()
        raise ZeroDivisionError

    assert nothing_happened(job)
    assert end(job, Succeeded("2")) == {job.lease.pk}


def test_a_failed_savepoint_inside_is_the_handlers_own_affair() -> None:
    job = running()
    with finishing(job, "1", using=QUEUE):
        land()
        with pytest.raises(IntegrityError), transaction.atomic(using=QUEUE):
            land("undone")
            statement("INSERT INTO pgjobs_job (job_type, max_attempts) VALUES ('x', 0)")

    assert columns(job.lease.pk, "status") == "succeeded"
    assert list(Effect.objects.values_list("key", flat=True)) == ["landed"]


def test_finish_twice_is_refused_by_the_fence() -> None:
    job = running()
    with finishing(job, "1", using=QUEUE):
        pass

    with pytest.raises(LeaseLost), finishing(job, "2", using=QUEUE):
        land()
    assert columns(job.lease.pk, "result") == 1 and not Effect.objects.exists()


def test_inside_atomic_it_is_refused() -> None:
    """It could not commit there, so what it says would not be so."""
    job = running()
    with (
        pytest.raises(PgJobsError, match=r"ctx\.finish\(\) opens its own transaction.*atomic\(\) block"),
        transaction.atomic(using=QUEUE),
        finishing(job, None, using=QUEUE),
    ):
        land()

    assert nothing_happened(job)


def test_with_autocommit_off_it_is_refused() -> None:
    job = running()
    transaction.set_autocommit(False, using=QUEUE)
    try:
        with pytest.raises(PgJobsError, match="turn autocommit on"), finishing(job, None, using=QUEUE):
            land()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True, using=QUEUE)

    assert nothing_happened(job)


def close() -> None:
    connection.close()


def close_and_reopen() -> None:
    connection.close()
    connection.connect()


def roll_back() -> None:
    statement("ROLLBACK")


def roll_back_below_django() -> None:
    raw: Any = connection.connection
    raw.rollback()


def roll_back_and_go_on() -> None:
    """What follows is in another transaction, which nobody fenced."""
    statement("ROLLBACK")
    statement("BEGIN")


def end_the_session() -> None:
    """As a restart of the server would."""
    pid = connection.connection.info.backend_pid
    with sessions("executioner") as [other]:
        other.run(statement, f"SELECT pg_terminate_backend({pid}, 20000)")


@pytest.mark.parametrize(
    "harm", [close, close_and_reopen, roll_back, roll_back_below_django, roll_back_and_go_on]
)
def test_a_commit_that_will_not_happen_is_noticed(harm: Callable[[], None]) -> None:
    job = running(idempotency_key="k")
    with (
        pytest.raises(
            CommitLost, match=rf"job {job.lease.pk}: the transaction of ctx.finish\(\) did not commit"
        ),
        finishing(job, "1", using=QUEUE),
    ):
        land()
        harm()

    assert nothing_happened(job)
    # The session that was closed may hold the row for a moment, and a settlement passes over what is locked.
    wait_until(
        lambda: end(job, Succeeded("2")) == {job.lease.pk}, 10, "a settlement by the attempt that goes on"
    )


def test_a_session_that_ends_inside_the_block() -> None:
    job = running(idempotency_key="k")
    with pytest.raises((DatabaseError, CommitLost)), finishing(job, "1", using=QUEUE):
        land()
        end_the_session()

    assert nothing_happened(job)


def test_a_transaction_marked_for_rollback_is_no_success() -> None:
    job = running()
    with pytest.raises(transaction.TransactionManagementError), finishing(job, "1", using=QUEUE):
        land()
        transaction.set_rollback(True, using=QUEUE)

    assert nothing_happened(job)


def test_a_deferred_constraint_that_fails_at_commit_is_no_success() -> None:
    job = running()
    statement("CREATE TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    try:
        with pytest.raises(IntegrityError), finishing(job, "1", using=QUEUE):
            land()
            statement("INSERT INTO late VALUES (1), (1)")
        assert nothing_happened(job)
    finally:
        statement("DROP TABLE late")


def test_a_key_that_has_a_result_skips_the_block() -> None:
    first, second = running(idempotency_key="k"), running(idempotency_key="k")
    with finishing(first, '"first"', using=QUEUE):
        land()

    with pytest.raises(AlreadyProduced) as caught, finishing(second, '"second"', using=QUEUE):
        land()

    assert caught.value.key == "k" and Effect.objects.count() == 1
    assert columns(second.lease.pk, "status") == "running"
    assert JobResult.objects.get().result == "first"


@pytest.mark.parametrize("first_commits", [True, False])
def test_two_finish_blocks_with_one_key_race(first_commits: bool) -> None:
    """The second waits for the first to commit or give up, and does no work of its own before it knows."""
    jobs_of_key = [running(idempotency_key="k"), running(idempotency_key="k")]

    def first_block(pause: Callable[[], None]) -> None:
        with finishing(jobs_of_key[0], '"first"', using=QUEUE):
            land("first")
            pause()
            if not first_commits:
                raise ZeroDivisionError

    def second_block() -> None:
        with finishing(jobs_of_key[1], '"second"', using=QUEUE):
            land("second")

    with sessions("one", "two") as [one, two]:
        first = Paused(one, first_block)
        second = two.start(second_block)
        two.wait_blocked()
        if first_commits:
            first.finish()
            with pytest.raises(AlreadyProduced):
                second.result(30)
        else:
            with pytest.raises(ZeroDivisionError):
                first.finish()
            second.result(30)

    winner = "first" if first_commits else "second"
    assert list(Effect.objects.values_list("key", flat=True)) == [winner]
    assert JobResult.objects.get().result == winner
