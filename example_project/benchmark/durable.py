"""Workflows: recorded steps a second, the replay of a long history, and what sleepers cost the claim."""

import statistics
import time
import uuid

from django.db import connection, transaction

from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import QUEUE
from example_project.benchmark.workflows import counting, remembering
from example_project.demo.crew import DemoError
from pgjobs.workflows.claiming import claim_executions

ROUNDS = 3
REPLAYS = 5
CLAIMS = 300
RUN_SECONDS = 300.0
LEFT = """
    SELECT (EXISTS (SELECT FROM pgjobs_execution
                    WHERE status NOT IN ('succeeded', 'failed', 'paused') AND id > {last}))::int"""
SPAN = """
    SELECT count(*) FILTER (WHERE status = 'succeeded' AND attempt_count = {turns}),
           (SELECT count(*) FROM pgjobs_stepoutput WHERE execution_id > {last}),
           extract(epoch FROM max(completed_at) - min(started_at))::float8
    FROM pgjobs_execution WHERE id > {last}"""
LAST = "SELECT COALESCE(max(id), 0) FROM pgjobs_execution"
DUE = """
    INSERT INTO pgjobs_execution (workflow_name, queue, input)
    SELECT %s, %s, '{"steps": 0}' FROM generate_series(1, 500)"""
ASLEEP = """
    WITH asleep AS (
        INSERT INTO pgjobs_execution (workflow_name, queue, status, attempt_count)
        SELECT %s, %s, 'waiting', 1 FROM generate_series(1, %s) RETURNING id)
    INSERT INTO pgjobs_wait (execution_id, step_id, kind, ordinal, wake_at)
    SELECT id, 'nap#1', 'sleep', 0, now() + interval '1 day' + id * interval '1 second' FROM asleep"""
SETTLE = "VACUUM ANALYZE pgjobs_execution, pgjobs_wait"


def steps(bench: Bench) -> dict[str, float]:
    """Executions that start at once beside an idle worker, from first claim to last completion by the database's clock.

    Raises DemoError when one needed a second turn or a step was not recorded.
    """
    sizes = bench.sizes
    bench.fleet.start_workers("steps", QUEUE, processes=1, concurrency=sizes.executions)
    rates = []
    for _ in range(ROUNDS):
        (last,) = bench.one(LAST)
        with transaction.atomic():
            for _ in range(sizes.executions):
                counting.start(steps=sizes.steps)
        seconds = _finished(bench, last, sizes.executions, sizes.steps, turns=1)
        rates.append(sizes.executions * sizes.steps / seconds)
    bench.fleet.end("steps")
    return {"steps_per_second": statistics.median(rates)}


def replay(bench: Bench) -> dict[str, float]:
    """From the second claim of an execution to its end, with its history in between: loaded, replayed, and settled."""
    bench.fleet.start_workers("replay", QUEUE, processes=1, concurrency=1)
    milliseconds = []
    for _ in range(REPLAYS):
        (last,) = bench.one(LAST)
        remembering.start(steps=bench.sizes.replayed)
        milliseconds.append(1000 * _finished(bench, last, 1, bench.sizes.replayed, turns=2))
    bench.fleet.end("replay")
    return {"replay_ms": statistics.median(milliseconds)}


def sleepers(bench: Bench) -> dict[str, float]:
    """The claim's median time without sleeping executions over that with them."""
    with connection.cursor() as cursor:
        cursor.execute(DUE, [counting.workflow_name, QUEUE])
        cursor.execute(SETTLE)
        free = _claim_seconds()
        cursor.execute(ASLEEP, [counting.workflow_name, QUEUE, bench.sizes.sleepers])
        cursor.execute(SETTLE)
    return {"above_sleepers": free / _claim_seconds()}


def _finished(bench: Bench, last: float, executions: int, steps: int, *, turns: int) -> float:
    """Seconds that the executions after ``last`` took in their latest turns, once all have ended."""
    bench.wait(lambda: bench.one(LEFT.format(last=last)) == (0,), "the end of the executions", RUN_SECONDS)
    once, recorded, seconds = bench.one(SPAN.format(last=last, turns=turns))
    if (once, recorded) != (executions, executions * steps):
        raise DemoError(
            f"{once} of {executions} executions succeeded in {turns} turns, with {recorded} of {executions * steps} "
            f"steps, so the time would mean nothing."
        )
    return seconds


def _claim_seconds() -> float:
    """Of one claim of one execution, round trip and history included; each is undone."""
    took = []
    for _ in range(CLAIMS):
        with transaction.atomic():
            began = time.perf_counter()
            claimed = claim_executions(
                owner="benchmark",
                token=uuid.uuid4(),
                limit=1,
                lease_seconds=30,
                names=[counting.workflow_name, remembering.workflow_name],
                queues=[QUEUE],
                suspects=False,
                using="default",
            )
            took.append(time.perf_counter() - began)
            transaction.set_rollback(True)
        if len(claimed) != 1:
            raise DemoError("A claim found nothing, so its time would mean nothing.")
    return statistics.median(took)
