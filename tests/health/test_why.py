"""Why a job is not running: for each reason the sentence, and that the first failing check is it."""

import pytest

from pgjobs.health.why import why
from pgjobs.queue.control import cancel
from pgjobs.queue.models import Job
from tests.health.situations import job, minute, pause, run, worker
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def reason(pk: int) -> str:
    found = why(pk)
    assert found is not None
    assert [check.state for check in found.checks if check.state not in ("ok", "fail", "info")] == []
    return found.reason.sentence if found.reason else ""


def last(pk: int) -> str:
    found = why(pk)
    assert found is not None
    return found.checks[-1].sentence


def test_no_such_job() -> None:
    assert why(2**62) is None


def test_no_worker_names_the_last() -> None:
    worker("w-7", queues='["billing"]', beat=1000)
    worker("w-8", queues='["mail"]')
    pk = job(queue="billing", ago=90)
    assert "No live worker serves 'billing'. Last: w-7 (host-a:4711), silent since" in reason(pk)
    found = why(pk)
    assert found is not None and found.cure == "start a worker: manage.py runworkers --queues billing"
    assert found.age is not None and 89 < found.age.total_seconds() < 95
    told = found.as_dict()
    assert told["schema"] == 1 and told["reason"] == reason(pk) and told["checks"][1]["target"] == "billing"


def test_no_worker_ever() -> None:
    assert "spelled right" in reason(job(queue="biling"))


def test_a_pause_of_its_queue_or_of_its_type() -> None:
    worker()
    pause("reports", ago=10)
    assert reason(job(queue="reports")).startswith("Queue 'reports' is paused by ana since")
    pause("jobsapp.ok", kind="type", ago=10, until=60)
    pk = job()
    assert reason(pk).startswith("Type 'jobsapp.ok' is paused")
    assert why(pk).cure == "manage.py pgjobs_resume --type jobsapp.ok"  # type: ignore[union-attr]


def test_the_type_is_known_to_nobody() -> None:
    worker(handlers='["a.b"]')
    assert "knows 'jobsapp.ok'" in reason(job())
    worker("w-2", handlers='["jobsapp.ok"]')
    assert reason(job()) == ""


def test_a_worker_that_stands_still() -> None:
    worker(poll=300)
    assert "The claim loop of w-1 stands still since" in reason(job())


def test_a_retry_that_waits_tells_the_last_error_without_its_secrets() -> None:
    worker()
    pk = job(
        ago=-190, attempt_count=4, last_error="ValueError: token=abc refused", payload='{"pin_key": "s3cret"}'
    )
    text = reason(pk)
    assert text.startswith("Attempt 4 failed; the next comes in 3 min ")
    assert "token=«redacted» refused" in text


def test_a_job_that_is_not_due() -> None:
    worker()
    assert "It is not due before" in reason(job(ago=-7300)) and "in 2 h 1 min" in reason(job(ago=-7300))


def test_a_suspect_waits_and_then_runs_alone() -> None:
    worker()
    assert "Its worker died 2 times: it waits another" in reason(job(ago=-50, crash_count=2))
    pk = job(ago=5, crash_count=1)
    found = why(pk)
    assert found is not None and found.reason is None
    assert any("Its worker died once, so it runs alone" in check.sentence for check in found.checks)
    for n in range(2):
        job("running", ago=-20, crash_count=1, lease_owner=f"s-{n}")
    assert "2 of 2 such processes" in reason(pk)


def test_a_key_that_has_a_result() -> None:
    worker()
    pk = job(idempotency_key="k-1", ago=1)
    assert any(c.sentence == "its idempotency key has no result yet" for c in why(pk).checks)  # type: ignore[union-attr]
    run("INSERT INTO pgjobs_jobresult (idempotency_key, job_id, produced_by) VALUES ('k-1', 77, 'w')")
    assert any("has a result already, by job 77" in c.sentence for c in why(pk).checks)  # type: ignore[union-attr]


def test_others_are_before_it_and_the_slots_are_taken() -> None:
    worker()
    for _ in range(12):
        job(ago=100)
    job(ago=200, priority=101)
    job(ago=-200, priority=1)
    job(ago=100, queue="other")
    pk = job(ago=50)
    for n in range(2):
        job("running", ago=-20, lease_owner=f"w-{n}")
    minute(60, done=50)
    sentences = [check.sentence for check in why(pk).checks]  # type: ignore[union-attr]
    assert any(s.startswith("12 ahead of it in 'default', about 1 min") for s in sentences), sentences
    assert reason(pk) == "2 of 2 slots are taken: the workers are busy"


def test_a_job_that_can_run() -> None:
    worker()
    pk = job(ago=40)
    assert reason(pk) == "" and "It can run now" in last(pk) and "waited 40 s" in last(pk)


def test_a_job_that_runs_or_whose_lease_has_lapsed() -> None:
    worker()
    assert "It runs on w-1" in last(job("running", ago=-5))
    assert "Its lease lapsed 1 min 40 s ago" in reason(job("running", ago=100))


def test_a_job_that_has_ended() -> None:
    pk = job()
    cancel([pk], actor="ann", reason="password=x")
    assert "pgjobs_retry" in last(pk)
    found = why(pk)
    assert found is not None and "cancelled by ann: password=«redacted»" in found.checks[0].sentence
    assert "runs no more by itself" in last(job("succeeded"))


def test_a_job_in_the_archive() -> None:
    pk = job("dead", ago=100)
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMM')")
        (month,) = cursor.fetchone()
    from pgjobs.queue.partitions import create_months
    from pgjobs.queue.retention import Policy, retire

    create_months([month], using=QUEUE)
    retire(Policy(1, 1, "archive"), using=QUEUE)
    assert not Job.objects.filter(pk=pk).exists()
    found = why(pk)
    assert found is not None and "was archived" in found.checks[0].sentence
