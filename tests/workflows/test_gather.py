"""Jobs as parallel steps: enqueued with their waits, gathered by the settlement that is enough, frozen then."""

from collections.abc import Callable
from typing import Any

import pytest

from pgjobs.exceptions import JobsFailed, WaitTimeout
from pgjobs.leases.release import release
from pgjobs.models import Execution, Job, JobResult, StepOutput, Wait
from pgjobs.queue.control import cancel as cancel_jobs
from pgjobs.queue.outcomes import Failed, Problem, Raised, Succeeded
from tests.jobsapp import workflows as flows
from tests.jobsapp.jobs import echo, ok
from tests.leases.factories import claim as claim_jobs
from tests.leases.factories import end as end_job
from tests.support.waiting import wait_until
from tests.worker.conftest import Spawn
from tests.workflows.carrier import FAILED, Carrier, awaited_jobs, finish_jobs, waits
from tests.workflows.rows import status


def gathering(count: int, **options: Any) -> Callable[[Any], Any]:
    def body(ctx: Any) -> Any:
        got = ctx.gather([ok.s(n) for n in range(count)], **options)
        ctx.sleep("nap", 5)
        again = [[f.index, f.status, f.error] for f in got.failures]
        return {"results": list(got), "failures": again}

    return body


def end(job: Job, outcome: Any) -> None:
    """Runs one job of those that are due, and only that."""
    found = claim_jobs(1_000, kinds=["jobsapp.ok", "jobsapp.echo"])
    [claimed] = [row for row in found if row.lease.pk == job.pk]
    end_job(claimed, outcome)
    release(Job, [row.lease for row in found if row is not claimed], using="default")


def test_jobs_and_waits_come_in_one_commit_and_the_slot_is_free(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(gathering(3)).start())

    assert (execution.status, execution.lease_token) == ("waiting", None)
    jobs = awaited_jobs(execution)
    assert [(job.payload, job.awaited, job.status) for job in jobs] == [
        ({"value": n}, True, "pending") for n in range(3)
    ]
    assert waits(execution) == [(f"gather#1[{n}]", False) for n in range(3)]


def test_the_last_settlement_wakes_and_the_order_is_that_of_the_calls(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(gathering(3)).start())
    jobs = awaited_jobs(execution)
    for n in (2, 0):
        end(jobs[n], Succeeded(str(n)))
        assert status(execution) == "waiting"
    end(jobs[1], Succeeded("1"))
    assert status(execution) == "enqueued"

    carrier.run(execution)
    assert carrier.wake(execution).output == {"results": [0, 1, 2], "failures": []}


@pytest.mark.parametrize(
    ("rule", "outcomes", "woken_after", "results", "failed"),
    [
        ({}, "ssss", 4, [0, 1, 2, 3], []),
        ({}, "sf", 2, None, [1]),
        ({"tolerated_failures": 1}, "sfss", 4, [0, None, 2, 3], [1]),
        ({"tolerated_failures": 1}, "ff", 2, None, [0, 1]),
        ({"tolerated_failures": 9}, "ffff", 4, [None] * 4, [0, 1, 2, 3]),
        ({"min_successful": 2}, "ss", 2, [0, 1, None, None], []),
        ({"min_successful": 2}, "fsfs", 4, [None, 1, None, 3], [0, 2]),
        ({"min_successful": 2}, "fsff", 4, None, [0, 2, 3]),
        ({"min_successful": 2}, "fff", 3, None, [0, 1, 2]),
        ({"min_successful": 3, "tolerated_failures": 4}, "ff", 2, None, [0, 1]),
        ({"min_successful": 1, "tolerated_failures": 0}, "fffs", 4, [None, None, None, 3], [0, 1, 2]),
        ({"min_successful": 0}, "", 0, [None] * 4, []),
    ],
)
def test_rules(
    carrier: Carrier, rule: dict[str, int], outcomes: str, woken_after: int, results: Any, failed: list[int]
) -> None:
    execution = carrier.run(carrier.flow(gathering(4, **rule)).start())
    jobs = awaited_jobs(execution)
    for n, outcome in enumerate(outcomes[:woken_after]):
        assert status(execution) == "waiting", f"before outcome {n}"
        end(jobs[n], Succeeded(str(n)) if outcome == "s" else FAILED)
    carrier.run(execution)
    if results is None:
        assert execution.status == "failed" and "JobsFailed" in execution.last_error
        assert f"{len(failed)} of its jobs ended without success" in execution.last_error
        assert f"item {failed[0]}, job {jobs[failed[0]].pk} failed: no luck" in execution.last_error
        return
    assert waits(execution)[-1] == ("nap#1", False), execution.last_error
    carrier.wake(execution)
    told = [[index, "failed", "no luck"] for index in failed]
    assert execution.output == {"results": results, "failures": told}


def test_jobs_that_end_late_change_nothing(carrier: Carrier) -> None:
    """What it came to is recorded when the body goes on: replays see that, whatever became of the rest."""
    execution = carrier.run(carrier.flow(gathering(3, min_successful=1, tolerated_failures=3)).start())
    jobs = awaited_jobs(execution)
    end(jobs[1], Succeeded('"first"'))
    end(jobs[0], Succeeded('"while queued"'))
    carrier.run(execution)
    end(jobs[2], FAILED)
    carrier.run(execution)
    carrier.wake(execution)
    carrier.replay(execution)

    assert execution.output == {"results": ["while queued", "first", None], "failures": []}
    assert all(resolved for _, resolved in waits(execution))


def test_retries_of_jobs_do_not_wake_and_the_spent_budget_does(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        return ctx.job(ok.using(max_attempts=2).s("x"))

    execution = carrier.run(carrier.flow(body).start())
    [job] = awaited_jobs(execution)
    problem = Raised(Problem("error", "ValueError", "no luck", ""), 0.0)
    end(job, problem)
    assert status(execution) == "waiting"
    end(job, problem)

    assert status(job) == "dead"
    assert carrier.run(execution).status == "failed"
    assert f"job {job.pk} dead: ValueError: no luck" in execution.last_error


def test_a_cancelled_job_counts_as_failed(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(gathering(1)).start())
    [job] = awaited_jobs(execution)
    cancel_jobs([job.pk], actor="test")

    assert carrier.run(execution).status == "failed" and f"job {job.pk} cancelled" in execution.last_error


def test_a_caught_failure_is_the_same_in_replays(carrier: Carrier) -> None:
    seen: list[Any] = []

    def body(ctx: Any) -> None:
        try:
            ctx.job(ok.s(1))
        except JobsFailed as error:
            seen.append((str(error), error.step_id, error.failures))
        ctx.sleep("nap", 5)

    execution = carrier.run(carrier.flow(body).start())
    finish_jobs(Failed(Problem("fail", "", "kö", "")))
    carrier.run(execution)
    carrier.wake(execution)

    assert len(seen) == 2 and seen[0] == seen[1] and seen[0][1] == "ok#1"
    assert execution.status == "succeeded"


def test_a_gather_times_out(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(gathering(2, timeout=5, tolerated_failures=1)).start())
    jobs = awaited_jobs(execution)
    end(jobs[0], Succeeded("0"))
    carrier.wake(execution)
    finish_jobs()

    carrier.wake(execution)
    assert execution.output == {"results": [0, None], "failures": [[1, "timed out", ""]]}


def test_nothing_but_timeouts_is_a_timeout(carrier: Carrier) -> None:
    seen: list[Any] = []

    def body(ctx: Any) -> None:
        try:
            ctx.gather([ok.s(n) for n in range(2)], timeout=5)
        except WaitTimeout as error:
            seen.append((str(error), error.step_id, ctx.now()))
        ctx.sleep("nap", 5)

    execution = carrier.run(carrier.flow(body).start())
    end(awaited_jobs(execution)[0], Succeeded("0"))
    carrier.wake(execution)
    assert carrier.wake(execution).status == "succeeded"
    assert len(seen) == 2 and seen[0] == seen[1] and seen[0][1] == "gather#1"


def test_map_and_job_have_the_names_of_their_jobs(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        mapped = ctx.map(echo, [{"n": 1}, {"n": 2}])
        return [list(mapped), ctx.job(ok.s(1), key="k"), list(ctx.gather([]))]

    execution = carrier.run(carrier.flow(body).start())
    finish_jobs()
    carrier.run(execution)
    finish_jobs()

    assert carrier.run(execution).output == [[{"done": True}] * 2, {"done": True}, []]
    assert [wait for wait, _ in waits(execution)] == ["echo#1[0]", "echo#1[1]", "ok[k][0]"]
    assert list(StepOutput.objects.order_by("ordinal").values_list("step_id", flat=True)) == [
        "echo#1",
        "ok[k]",
        "gather#1",
    ]


def test_what_is_no_call_or_no_rule_is_refused(carrier: Carrier) -> None:
    def body(ctx: Any) -> None:
        for options in ({"min_successful": 2}, {"min_successful": -1}, {"tolerated_failures": -1}):
            with pytest.raises(ValueError, match=next(iter(options))):
                ctx.gather([ok.s(1)], **options)
        ctx.gather([ok])

    execution = carrier.run(carrier.flow(body).start())
    assert "is not a job's call" in execution.last_error and not Job.objects.exists()


def test_options_of_the_calls_reach_the_jobs(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        call = ok.using(queue="slow", priority=7, max_attempts=9, idempotency_key="paid:1").s("x")
        return [ctx.job(call), ctx.job(call, name="again")]

    execution = carrier.run(carrier.flow(body).start())
    [job] = awaited_jobs(execution)
    assert (job.queue, job.priority, job.max_attempts, job.idempotency_key) == ("slow", 7, 9, "paid:1")
    finish_jobs(Succeeded('"once"'))
    carrier.run(execution)
    finish_jobs(Succeeded('"twice"'))

    assert carrier.run(execution).output == ["once", "once"], "the key had a result"
    assert JobResult.objects.get().job_id == job.pk


def test_replayed_while_it_waits_nothing_is_enqueued_again(carrier: Carrier) -> None:
    execution = carrier.run(carrier.flow(gathering(2)).start())
    for _ in range(2):
        Execution.objects.filter(pk=execution.pk).update(status="enqueued")
        assert carrier.run(execution).status == "waiting"

    assert Job.objects.count() == 2 and Wait.objects.count() == 2


def test_retry_of_a_failed_gather_is_a_new_choice_of_the_body(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        for attempt in range(2):
            try:
                return ctx.job(ok.s(attempt), key=f"try {attempt}")
            except (JobsFailed, WaitTimeout):
                ctx.sleep("pause", 5, key=attempt)
        return "gave up"

    execution = carrier.run(carrier.flow(body).start())
    finish_jobs(FAILED)
    carrier.run(execution)
    carrier.wake(execution)
    finish_jobs(Succeeded('"second"'))

    assert carrier.run(execution).output == "second"


@pytest.mark.workers
def test_a_hundred_jobs_with_one_slot_of_one_worker(spawn: Spawn) -> None:
    """Execution and jobs share the queue and the only slot: whoever waits must not hold it."""
    started = flows.fan_out.start(count=100)
    spawn(concurrency=1)

    wait_until(
        lambda: status(started) == "succeeded", 60, lambda: f"the end; {started.pk} is {status(started)}"
    )
    started.refresh_from_db()
    assert started.output == {"sum": sum(range(100)), "child": 3}
    assert Job.objects.filter(status="succeeded", awaited=True).count() == 100
    assert started.attempt_count == 3, "start, woken by the last of the jobs, woken by the child"


@pytest.mark.workers
def test_failing_dead_and_killing_jobs(spawn: Spawn) -> None:
    started = flows.mixed_luck.start()
    spawn(concurrency=2)

    wait_until(lambda: status(started) in ("succeeded", "failed"), 60, "the end")
    started.refresh_from_db()
    assert started.output == ["fine", [[1, "failed"], [2, "dead"], [3, "dead"]]], started.last_error
