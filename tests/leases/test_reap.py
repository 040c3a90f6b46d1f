"""Reaping: what a dead worker held comes back, its deaths are counted, and no row holds up another."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from pgjobs import signals
from pgjobs.leases.reap import Reaped, reap_lapsed, reap_owner
from pgjobs.queue.models import Job
from pgjobs.queue.outcomes import Raised
from tests.leases.factories import (
    PROBLEM,
    claim,
    claim_ids,
    columns,
    end,
    lapse,
    make_due,
    pending,
    running,
    whole_row,
)
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def reap(limit: int | None = None) -> Reaped:
    return reap_lapsed(Job, using=QUEUE, limit=limit)


def delay_of(pk: int) -> float:
    """Seconds that the row still has to wait."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM available_at - clock_timestamp())::float8 FROM pgjobs_job WHERE id = %s",
            [pk],
        )
        [[seconds]] = cursor.fetchall()
        return float(seconds)


def test_only_lapsed_leases_are_taken() -> None:
    pending(3)
    lost, healthy, _ = claim(3)
    lapse(lost.lease.pk)
    before = whole_row(healthy.lease.pk)

    reaped = reap()

    assert (reaped.requeued, reaped.exhausted) == ([lost.lease.pk], [])
    assert whole_row(healthy.lease.pk) == before
    assert not reap()


def test_what_is_written_of_a_lost_attempt() -> None:
    job = running(owner="worker-x", payload={"n": 1})
    heartbeat = columns(job.lease.pk, "heartbeat_at")
    lapse(job.lease.pk)
    reap()

    row = whole_row(job.lease.pk)
    assert (row["status"], row["lease_owner"], row["lease_token"], row["lease_expires_at"]) == (
        "pending",
        None,
        None,
        None,
    )
    assert (row["attempt_count"], row["crash_count"], row["completed_at"]) == (1, 1, None)
    [entry] = row["errors"]
    assert (entry["kind"], entry["attempt"], entry["worker"]) == ("lost", 1, "worker-x")
    assert "type" not in entry and "traceback" not in entry
    assert entry["heartbeat_at"].startswith(heartbeat.strftime("%Y-%m-%dT%H:%M:%S"))
    assert "worker-x died or went silent during attempt 1" in row["last_error"]
    assert row["last_error"] == entry["message"] and "crash 1 of 3" in entry["message"]


def test_the_delay_grows_with_each_death_and_is_capped(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "CRASH_DELAY_SECONDS": 10, "CRASH_DELAY_CAP_SECONDS": 100}
    [pk] = pending(max_crashes=1_000)
    expected = [10, 20, 40, 80, 100, 100]

    for seconds in expected:
        claim(1, suspects=columns(pk, "crash_count") > 0)
        lapse(pk)
        assert reap().requeued == [pk]
        assert seconds * 0.9 - 2 <= delay_of(pk) <= seconds * 1.1
        make_due(pk)


def test_a_row_that_has_died_a_thousand_times_still_has_a_delay() -> None:
    job = running(crash_count=1_000, max_crashes=10_000)
    lapse(job.lease.pk)

    assert reap().requeued == [job.lease.pk]
    assert delay_of(job.lease.pk) == pytest.approx(300, rel=0.12)


def test_a_spent_crash_budget_ends_dead_with_the_evidence() -> None:
    job = running(crash_count=2, owner="worker-y", available_at=Now())
    lapse(job.lease.pk)

    assert reap().exhausted == [job.lease.pk]

    row = whole_row(job.lease.pk)
    assert (row["status"], row["crash_count"]) == ("dead", 3)
    assert row["completed_at"] is not None and row["completed_by"] is None
    assert (
        row["note"].startswith("crash budget spent: worker worker-y died") and "crash 3 of 3" in row["note"]
    )
    assert not reap() and claim(5) == [] and claim(5, suspects=True) == []


def test_deaths_do_not_spend_attempts_and_exceptions_do_not_spend_crashes() -> None:
    [pk] = pending(max_attempts=2, max_crashes=3)
    for _ in range(2):
        [job] = claim(1, suspects=columns(pk, "crash_count") > 0)
        lapse(pk)
        reap()
        make_due(pk)
    [job] = claim(1, suspects=True)
    assert (job.attempt, job.crash_count) == (3, 2)
    end(job, Raised(PROBLEM, 0))
    assert columns(pk, "status", "crash_count", "attempt_count") == ("pending", 2, 3)
    [job] = claim(1, suspects=True)
    end(job, Raised(PROBLEM, 0))

    assert columns(pk, "status", "note") == ("dead", "attempt budget spent: 2 of 2")
    assert [entry["kind"] for entry in columns(pk, "errors")] == ["lost", "lost", "error", "error"]


def test_a_reaped_row_is_a_suspect() -> None:
    job = running()
    lapse(job.lease.pk)
    reap()
    make_due(job.lease.pk)

    assert claim_ids(5) == []
    assert claim_ids(5, suspects=True) == [job.lease.pk]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_errors_are_bounded_and_the_oldest_go(settings: Any, limit: int) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "MAX_ERRORS": limit}
    job = running(crash_count=1, max_crashes=50, errors=[{"attempt": -n} for n in range(limit)])
    lapse(job.lease.pk)
    reap()

    errors = columns(job.lease.pk, "errors")
    assert len(errors) == limit
    assert errors[-1]["kind"] == "lost" and errors[:-1] == [{"attempt": -n} for n in range(1, limit)]


@pytest.mark.parametrize("edited", [{"a": 1}, "text", 5, True, {}])
def test_a_history_that_is_no_list_starts_anew(edited: Any) -> None:
    job = running(errors=edited)
    lapse(job.lease.pk)

    assert reap().requeued == [job.lease.pk]
    assert [entry["kind"] for entry in columns(job.lease.pk, "errors")] == ["lost"]


def test_a_history_of_json_null_starts_anew() -> None:
    job = running()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET errors = 'null'::jsonb WHERE id = %s", [job.lease.pk])
    lapse(job.lease.pk)

    assert reap().requeued == [job.lease.pk]
    assert len(columns(job.lease.pk, "errors")) == 1


def test_rows_of_unknown_types_are_reaped_too() -> None:
    job = running(job_type="gone.handler")
    lapse(job.lease.pk)

    assert reap().requeued == [job.lease.pk]


def test_batches_are_limited_and_all_are_reached() -> None:
    pending(7)
    ids = [job.lease.pk for job in claim(7)]
    lapse(*ids)

    batches = [sorted(reap(limit=3).requeued) for _ in range(4)]

    assert batches == [ids[:3], ids[3:6], ids[6:], []]


def test_a_known_death_is_taken_back_before_the_lease_ends(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "REAP_BATCH": 2}
    pending(5)
    mine = [job.lease.pk for job in claim(4, owner="worker-a")]
    [other] = claim(1, owner="worker-b")

    reaped = reap_owner(Job, "worker-a", using=QUEUE)

    assert sorted(reaped.requeued) == mine
    assert columns(other.lease.pk, "status") == "running"
    assert not reap_owner(Job, "worker-a", using=QUEUE)


def test_the_signal_tells_which_rows() -> None:
    told: list[dict[str, Any]] = []

    def listen(sender: Any, **facts: Any) -> None:
        told.append(facts)
        raise RuntimeError("a receiver's fault is its own")

    back, dead = running(), running(crash_count=2)
    lapse(back.lease.pk, dead.lease.pk)
    signals.rows_reaped.connect(listen)
    try:
        reap(), reap()
    finally:
        signals.rows_reaped.disconnect(listen)

    [facts] = told
    assert (facts["label"], facts["requeued"], facts["exhausted"]) == (
        "job",
        [back.lease.pk],
        [dead.lease.pk],
    )


@pytest.fixture
def refusing_trigger(transactional_db: None) -> Iterator[str]:
    """Makes every update raise of the row whose queue is "cursed"."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF OLD.queue = 'cursed' AND OLD.status = 'running' THEN RAISE EXCEPTION 'cursed row'; END IF;"
            " RETURN NEW; END $$;"
            "CREATE TRIGGER refuse BEFORE UPDATE ON pgjobs_job FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    yield "cursed"
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refuse ON pgjobs_job; DROP FUNCTION refuse()")


def test_a_row_that_cannot_be_moved_does_not_hold_up_the_others(refusing_trigger: str) -> None:
    first, last = pending(2)
    [cursed] = pending(queue=refusing_trigger)
    # Lapsed leases from the start: the trigger would refuse an update that moves them.
    claim(10, lease_seconds=-5)
    assert Job.objects.filter(status="running", lease_expires_at__lt=Now()).count() == 3

    assert sorted(reap().requeued) == [first, last]
    assert not reap()
    assert columns(cursed, "status") == "running"


def test_a_known_death_with_a_row_that_cannot_be_moved(refusing_trigger: str) -> None:
    pending(queue=refusing_trigger)
    ids = pending(3)
    claim(10)

    assert sorted(reap_owner(Job, "worker-a", using=QUEUE).requeued) == ids


def test_the_age_of_a_heartbeat_is_by_the_databases_clock() -> None:
    """A worker's clock that is hours off changes nothing: no time in a lease comes from Python."""
    job = running()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        [[now]] = cursor.fetchall()

    started, expires = columns(job.lease.pk, "started_at", "lease_expires_at")
    assert timedelta(0) <= now - started < timedelta(seconds=10)
    assert abs(expires - started - timedelta(seconds=60)) < timedelta(seconds=1)
