"""Why a job or an execution does not go on: for each reason the sentence, and that the first failing check is it."""

import pytest

from pgjobs.health.answer import Why
from pgjobs.health.why import why
from pgjobs.health.why_execution import why_execution
from pgjobs.queue.control import cancel
from pgjobs.queue.models import Job
from pgjobs.worker.registration import new_name
from tests.health.situations import job, minute, pause, run, worker
from tests.support.own_database import QUEUE, connection
from tests.workflows import rows as flows

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


def told(pk: int) -> str:
    """All that is said of it."""
    found = why(pk)
    assert found is not None
    return "\n".join(check.sentence for check in found.checks)


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
    assert "runs alone in its process: 2 of the 2 processes for suspects" in reason(pk)


def test_suspects_have_room_in_each_runworkers_that_serves_the_queue() -> None:
    for number in ("1", "2"):
        worker(new_name(number))
    for n in range(2):
        owner = new_name(f"suspect{n}")
        worker(owner, slots=1)
        job("running", ago=-20, crash_count=1, lease_owner=owner)
    pk = job(ago=5, crash_count=1)
    assert "2 of the 2 processes for suspects are taken." in reason(pk)
    worker(new_name("1"))
    assert reason(pk) == "" and "2 of the 4 processes for suspects are taken (2 of each of 2" in told(pk)
    elsewhere = new_name("suspect1")
    worker(elsewhere, slots=1, queues='["mail"]')
    job("running", ago=-20, crash_count=1, queue="mail", lease_owner=elsewhere)
    assert "2 of the 4" in told(pk)
    for n in range(2):  # executions take the same processes
        flows.execution("running", lease_owner=f"s-{n}", crash_count=1)
    assert "4 of the 4 processes for suspects are taken" in reason(pk)


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


def answer(pk: int) -> Why:
    found = why_execution(pk)
    assert found is not None
    return found


def stuck(pk: int, reason: str, cure: str, target: str = "") -> None:
    """The first failing check, what helps, and where it leads."""
    found = answer(pk)
    assert found.reason is not None, found.checks
    assert reason in found.reason.sentence
    assert (cure in found.cure) if cure else not found.cure
    assert found.reason.target == target


def test_an_execution_that_is_paused_says_why_and_what_resumes_it() -> None:
    worker()
    made = flows.execution("paused", pause_reason="diverged at step 3: token=abc", input={"token": "abc"})
    flows.step(made, 0)
    stuck(
        made.pk,
        "paused: diverged at step 3: token=«redacted»",
        f"pgjobs_resume --execution {made.pk}",
        str(made.pk),
    )
    assert "latest recorded step is 'step0#1', call 0" in answer(made.pk).checks[0].sentence
    told = answer(made.pk).as_dict()
    assert (told["execution"], told["workflow"], told["status"]) == (made.pk, flows.NAME, "paused")


def test_what_an_execution_waits_for() -> None:
    worker()
    asleep = flows.wait(flows.execution(), "sleep", due_in=7_260)
    stuck(asleep.execution_id, "It sleeps in 'sleep#0' until", "")
    assert "another 2 h" in answer(asleep.execution_id).reason.sentence  # type: ignore[union-attr]
    again = flows.wait(flows.execution(), "sleep", step_id="charge#1~retry4", group="charge#1", due_in=60)
    stuck(again.execution_id, "Attempt 4 of 'charge#1' failed; it waits for the next until", "")
    asked = flows.approval(permission="auth.add_user", groups=["ops"], due_in=60)
    stuck(
        asked.execution_id,
        "for a decision on 'apply fix', by permission auth.add_user, group ops; undecided it is rejected in 5",
        f"pgjobs_approve {asked.pk} --approve",
        str(asked.pk),
    )
    said = answer(asked.execution_id)
    assert said.checks[0].sentence.endswith(
        "s. But nobody but a superuser can decide it: no active user holds permission 'auth.add_user'; "
        "there is no group 'ops'."
    )
    assert said.cure.startswith("mend what the names stand for, or as a superuser: manage.py pgjobs_approve")
    job_awaited = flows.job("running")
    by_job = flows.wait(flows.execution(), "job", target_id=job_awaited.pk)
    stuck(
        by_job.execution_id,
        f"for job {job_awaited.pk} (jobsapp.ok, running)",
        f"pgjobs_why {job_awaited.pk}",
        str(job_awaited.pk),
    )
    by_child = flows.wait(flows.execution(), "child", target_id=asleep.execution_id)
    stuck(
        by_child.execution_id,
        f"for child {asleep.execution_id} (tests.flow, waiting)",
        f"pgjobs_why --execution {asleep.execution_id}",
        str(asleep.execution_id),
    )


def test_a_gather_is_told_as_a_whole_and_leads_to_what_does_not_run() -> None:
    made = flows.execution()
    jobs = [flows.job("running"), flows.job(), flows.job()]
    flows.gather(made, [each.pk for each in jobs])
    stuck(
        made.pk, "in 'gather#1' for 3 jobs: 2 pending, 1 running", f"pgjobs_why {jobs[1].pk}", str(jobs[1].pk)
    )


def test_a_signal_under_a_misspelt_name_is_found_in_the_mailbox() -> None:
    made = flows.wait(flows.execution(), "signal", name="paid").execution
    stuck(made.pk, "the signal 'paid'", "execution.signal", "paid")
    assert any(check.sentence == "its mailbox is empty" for check in answer(made.pk).checks)
    made.messages.create(name="piad")
    assert any("taken by no wait: 'piad' ×1" in check.sentence for check in answer(made.pk).checks)


def test_a_wait_that_nobody_wakes() -> None:
    made = flows.wait(flows.execution(queue="flows"), "sleep", due_in=-100).execution
    stuck(made.pk, "was due 1 min 40 s ago, and no worker has looked", "runworkers --queues flows")
    assert any("No live worker serves 'flows'" in check.sentence for check in answer(made.pk).checks)
    stuck(flows.execution().pk, "nothing that it waits for is open", "runworkers", "default")


def test_an_execution_that_could_go_on() -> None:
    made = flows.execution("enqueued")
    stuck(made.pk, "No live worker serves 'default'", "runworkers --queues default", "default")
    assert answer(flows.execution("enqueued", queue="it's").pk).cure.endswith("""--queues 'it'"'"'s'""")
    worker(handlers='["other.flow"]')
    stuck(made.pk, "knows 'tests.flow'", "deploy", "tests.flow")
    worker("w-2", handlers='["tests.flow"]')
    found = answer(made.pk)
    assert found.reason is None and "It can go on now" in found.checks[-1].sentence
    pause("tests.flow", kind="type", ago=5)
    stuck(made.pk, "Type 'tests.flow' is paused by ana", "pgjobs_resume --type tests.flow", "tests.flow")


def test_an_execution_that_runs_has_ended_or_is_gone() -> None:
    worker("host.1.abc")
    made = flows.execution("running")
    assert any("It runs on host.1.abc" in check.sentence for check in answer(made.pk).checks)
    run("UPDATE pgjobs_execution SET lease_expires_at = now() - interval '90 s'")
    stuck(made.pk, "Its lease lapsed 1 min 30 s ago", "manage.py runreaper")
    ended = flows.execution("failed", last_error="ValueError: no", note="x")
    sentences = [check.sentence for check in answer(ended.pk).checks]
    assert "ValueError: no" in sentences and any("pgjobs_fork" in told for told in sentences)
    assert answer(ended.pk).reason is None
    assert why_execution(2**62) is None
