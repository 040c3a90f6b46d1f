"""How jobs come to a worker: by notification, by polling alone, from any client, and never before the commit."""

import json
from datetime import timedelta

import pytest
from django.db import connection, transaction

from pgjobs.models import Job
from tests.jobsapp.jobs import effect, retry_once
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.worker.conftest import Spawn
from tests.worker.observation import deeds, row, sessions, wait_ended, wait_for_deed

pytestmark = pytest.mark.workers

SLOW_POLL = ("--lease-seconds", "30", "--heartbeat-seconds", "5", "--poll-seconds", "60")
NO_POLL = {"IDLE_POLL_SECONDS": 60, "REAP_SECONDS": 60}
SOON = 20.0  # far below the poll interval, far above what a busy machine needs


def test_notifications_alone_bring_jobs(spawn: Spawn) -> None:
    spawn(clock=SLOW_POLL, concurrency=2, settings=NO_POLL, env={"PGAPPNAME": "listening"})
    probed = "NOTIFY pgjobs_probe"
    wait_until(
        lambda: any(query.startswith(probed) for query in sessions("listening").values()),
        message="the listener's probe",
    )

    effect.enqueue(key="first")
    wait_for_deed("first", SOON)
    effect.enqueue(key="second")
    wait_for_deed("second", SOON)
    # One notification arrives, whatever the number of jobs: the worker looks until nothing is left.
    with transaction.atomic():
        crowd = [effect.enqueue(key=f"crowd {n}").pk for n in range(50)]
        crowd += effect.enqueue_many({"key": f"crowd {n}"} for n in range(50, 100))
    wait_ended(crowd, SOON)
    again = retry_once.enqueue(key="again", after_seconds=0.3)
    assert wait_ended([again], SOON)[again.pk].attempt_count == 2, "a retry does not wait for the next poll"


def test_an_insert_of_any_client_wakes_an_idle_worker(spawn: Spawn) -> None:
    spawn(clock=SLOW_POLL, settings=NO_POLL, env={"PGAPPNAME": "idle"})
    wait_until(
        lambda: any(query.startswith("NOTIFY pgjobs_probe") for query in sessions("idle").values()),
        message="the listener's probe",
    )

    wait_for_deed_of_another_client("raw", SOON)


def test_a_delayed_job_does_not_wait_for_the_next_poll(spawn: Spawn) -> None:
    spawn(clock=SLOW_POLL, settings=NO_POLL)
    effect.enqueue(key="now")
    wait_for_deed("now", SOON)

    delayed = effect.using(run_after=timedelta(seconds=1)).enqueue(key="delayed")

    wait_for_deed("delayed", SOON)
    job = wait_ended([delayed])[delayed.pk]
    assert job.started_at >= job.available_at


def test_polling_alone_brings_jobs(spawn: Spawn) -> None:
    spawn(settings={"NOTIFY": False}, env={"PGAPPNAME": "polling"})

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (job_type, payload) VALUES ('jobsapp.effect', %s) RETURNING id",
            [json.dumps({"key": "from any language"})],
        )
        raw = cursor.fetchone()[0]
    wait_for_deed("from any language")
    assert wait_ended([raw])[raw].status == "succeeded"
    assert not [query for query in sessions("polling").values() if "LISTEN" in query or "NOTIFY" in query]

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Effect.objects.create(key="rolled back", pid=0)
        taken_back = effect.enqueue(key="rolled back")
        raise ZeroDivisionError
    with transaction.atomic():
        committed = effect.enqueue(key="committed")
        # As long as the transaction is open, a whole round of other work passes it by.
        wait_for_deed_of_another_client("meanwhile")
        assert not deeds("committed")
    wait_for_deed("committed")
    assert not Job.objects.filter(pk=taken_back.pk).exists()
    assert not deeds("rolled back")
    assert wait_ended([committed])[committed.pk].attempt_count == 1


def wait_for_deed_of_another_client(key: str, seconds: float = 60) -> None:
    import psycopg

    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
        other.execute(
            "INSERT INTO pgjobs_job (job_type, payload) VALUES ('jobsapp.effect', %s)",
            [json.dumps({"key": key})],
        )
    wait_for_deed(key, seconds)


def test_unknown_job_types_wait(spawn: Spawn) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgjobs_job (job_type) VALUES ('another.release') RETURNING id")
        unknown = cursor.fetchone()[0]
    known = effect.enqueue(key="known")

    workers = spawn("--drain", wait=False)

    assert workers.wait(60) == 0
    assert row(known.pk).status == "succeeded"
    left = row(unknown)
    assert (left.status, left.attempt_count, left.errors) == ("pending", 0, [])
