"""Retry of an execution whose last call failed outside of it: in jobs or in a child."""

from typing import Any

from pgjobs.exceptions import ExecutionFailed, JobsFailed
from pgjobs.models import Execution, Job, Wait
from pgjobs.queue import control as jobs
from pgjobs.workflows.control import cancel, retry
from tests.jobsapp.jobs import ok
from tests.workflows.carrier import FAILED, Carrier, awaited_jobs, finish_jobs, recorded
from tests.workflows.rows import resolution, status


def gathered(carrier: Carrier, count: int, **options: Any) -> Execution:
    """An execution that failed with its gather, the jobs of which all failed."""

    def body(ctx: Any) -> Any:
        ctx.step(int, "1", name="before")
        return list(ctx.gather([ok.s(n) for n in range(count)], **options))

    execution = carrier.run(carrier.flow(body).start())
    finish_jobs(FAILED)
    assert carrier.run(execution).status == "failed"
    return execution


def test_a_failed_job_runs_again(carrier: Carrier) -> None:
    execution = gathered(carrier, 2)
    before = list(Wait.objects.values_list("pk", flat=True))
    assert recorded(execution) == ["before#1"], "nothing is recorded of a failure that ended the execution"

    [outcome] = retry([execution.pk], actor="ann", reason="fixed")

    assert outcome.done and [job.status for job in awaited_jobs(execution)] == ["pending"] * 2
    assert {job.note for job in awaited_jobs(execution)} == {"retried by ann: fixed"}
    assert carrier.run(execution).status == "waiting"
    finish_jobs()
    assert carrier.run(execution).output == [{"done": True}] * 2
    assert list(Wait.objects.values_list("pk", flat=True)) == before, "waits are never deleted"


def test_succeeded_members_keep_their_results(carrier: Carrier) -> None:
    execution = gathered(carrier, 1, tolerated_failures=0)
    [job] = awaited_jobs(execution)
    jobs.retry([job.pk], actor="ann")
    finish_jobs()

    assert retry([execution.pk], actor="ann")[0].done
    assert carrier.run(execution).output == [{"done": True}], "the job had succeeded meanwhile"


def test_a_new_deadline_is_as_far_away_as_the_first(carrier: Carrier) -> None:
    execution = gathered(carrier, 1, timeout=3600)
    Wait.objects.update(wake_at="2020-01-01T00:00:00Z", created_at="2019-12-31T23:00:00Z")

    assert retry([execution.pk], actor="ann")[0].done
    wait = Wait.objects.get()
    execution.refresh_from_db()
    assert 3590 < (wait.wake_at - execution.updated_at).total_seconds() <= 3600


def test_a_caught_failure_is_history_and_is_not_run_again(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        try:
            ctx.job(ok.s(1))
        except JobsFailed:
            ctx.step(int, "none", name="after")

    execution = carrier.run(carrier.flow(body).start())
    finish_jobs(FAILED)
    assert carrier.run(execution).status == "failed"
    assert recorded(execution) == ["ok#1"]

    assert retry([execution.pk], actor="ann")[0].done
    assert [job.status for job in awaited_jobs(execution)] == ["failed"]
    assert carrier.run(execution).status == "failed" and "after#1" in execution.last_error


def test_a_failed_child_is_retried_with_what_failed_in_it(carrier: Carrier) -> None:
    def child(ctx: Any) -> Any:
        return ctx.job(ok.s(1))

    def body(ctx: Any) -> Any:
        return ctx.child(born)

    born = carrier.flow(child, name="tests.child")
    execution = carrier.run(carrier.flow(body).start())
    finish_jobs(FAILED)
    assert carrier.run(execution).status == "failed"

    [outcome] = retry([execution.pk], actor="ann")
    assert outcome.done and outcome.id == execution.pk
    assert status(Execution.objects.get(parent=execution)) == "enqueued"
    assert status(Job.objects.get()) == "pending"
    carrier.run(execution)
    finish_jobs()
    assert carrier.run(execution).output == {"done": True}
    assert Execution.objects.count() == 2


def test_a_child_that_was_retried_before_answers_anew(carrier: Carrier) -> None:
    luck = ["none"]

    def child(ctx: Any) -> Any:
        return ctx.step(int, luck[0], name="try")

    def body(ctx: Any) -> Any:
        return ctx.child(born)

    born = carrier.flow(child, name="tests.child")
    execution = carrier.run(carrier.flow(body).start())
    assert carrier.run(execution).status == "failed"
    luck[0] = "7"
    made = Execution.objects.get(parent=execution)
    retry([made.pk], actor="ann")
    assert carrier.run(made).output == 7 and status(execution) == "failed"

    assert retry([execution.pk], actor="ann")[0].done
    assert carrier.run(execution).output == 7


def test_a_wait_that_timed_out_is_not_reopened(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        ctx.step(int, "1", name="before")
        ctx.wait_signal("paid", timeout=60)

    execution = carrier.run(carrier.flow(body).start())
    assert carrier.wake(execution).status == "failed"

    [outcome] = retry([execution.pk], actor="ann")
    assert (outcome.done, outcome.status) == (False, "failed")
    assert "nothing would change" in outcome.message and "from call 1" in outcome.message
    assert "paid#1" in outcome.message


def test_jobs_that_timed_out_leave_nothing_to_retry(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        return list(ctx.gather([ok.s(1)], timeout=60))

    execution = carrier.run(carrier.flow(body).start())
    assert carrier.wake(execution).status == "failed" and "WaitTimeout: 'gather#1'" in execution.last_error
    assert not retry([execution.pk], actor="ann")[0].done
    assert resolution(Wait.objects.get()) == {"timeout": True}


def test_a_default_for_the_timeout_does_not_stand_in_the_way(carrier: Carrier) -> None:
    """The failure is another: the step after it runs again."""
    luck = ["none"]

    def body(ctx: Any) -> Any:
        ctx.wait_signal("paid", timeout=60, default=None)
        return ctx.step(int, luck[0], name="try")

    execution = carrier.run(carrier.flow(body).start())
    assert carrier.wake(execution).status == "failed"
    luck[0] = "7"
    assert retry([execution.pk], actor="ann")[0].done
    assert carrier.run(execution).output == 7


def test_a_cancelled_child_leaves_nothing_to_retry(carrier: Carrier) -> None:
    def child(ctx: Any) -> Any:
        ctx.sleep(60)

    def body(ctx: Any) -> Any:
        return ctx.child(born)

    born = carrier.flow(child, name="tests.child")
    execution = carrier.run(carrier.flow(body).start())
    cancel([Execution.objects.get(parent=execution).pk], actor="ann")
    assert carrier.run(execution).status == "failed"

    [outcome] = retry([execution.pk], actor="ann")
    assert not outcome.done and "from call 0" in outcome.message


def test_a_caught_failed_child_is_left_alone_once_the_body_went_on(carrier: Carrier) -> None:
    luck = ["none"]

    def child(ctx: Any) -> Any:
        return ctx.step(int, "none", name="try")

    def body(ctx: Any) -> Any:
        try:
            ctx.child(born)
        except ExecutionFailed:
            ctx.step(str, "noted", name="note")
        return ctx.step(int, luck[0], name="after")

    born = carrier.flow(child, name="tests.child")
    execution = carrier.run(carrier.flow(body).start())
    assert carrier.run(execution).status == "failed"
    luck[0] = "7"
    assert retry([execution.pk], actor="ann")[0].done
    assert status(Execution.objects.get(parent=execution)) == "failed"
    assert carrier.run(execution).output == 7
