"""What lies beneath costs the claim nothing: plans and buffers with 200,000 ended and 100,000 sleeping executions."""

import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import connection

from pgjobs.leases.claim import claim
from pgjobs.models import Execution
from pgjobs.workflows.claiming import _COLUMNS
from pgjobs.workflows.history import load
from pgjobs.workflows.sweep import seconds_until_due, sweep_due
from tests.leases.plans import Plan, Recorder, plan_of, statements_kept

NAME = "tests.flow"
FLAT = 40  # buffers of a look that does not depend on how many rows there are

ENQUEUED = "INSERT INTO pgjobs_execution (workflow_name) SELECT 'tests.flow' FROM generate_series(1, 500)"
ENDED = """INSERT INTO pgjobs_execution (workflow_name, status, completed_at, output)
    SELECT 'tests.flow', (ARRAY['succeeded', 'failed', 'cancelled'])[1 + n % 3], now(), to_jsonb(n)
    FROM generate_series(1, 200000) AS n"""
SLEEPING = """WITH asleep AS (
    INSERT INTO pgjobs_execution (workflow_name, status)
    SELECT 'tests.flow', 'waiting' FROM generate_series(1, 100000) RETURNING id)
    INSERT INTO pgjobs_wait (execution_id, step_id, kind, ordinal, wake_at)
    SELECT id, 'nap#1', 'sleep', 1, now() + make_interval(secs => 3600 + id % 1000) FROM asleep"""
STEPS = """INSERT INTO pgjobs_stepoutput (execution_id, step_id, kind, ordinal, output, output_bytes)
    SELECT id, 'work[' || n || ']', 'step', n, '1', 1
    FROM (SELECT id FROM pgjobs_execution WHERE status = 'waiting' ORDER BY id LIMIT 10000) AS asleep,
         generate_series(0, 9) AS n"""
ANALYZE = "VACUUM ANALYZE pgjobs_execution, pgjobs_wait, pgjobs_stepoutput"
EMPTY = "TRUNCATE pgjobs_execution, pgjobs_wait, pgjobs_stepoutput, pgjobs_message"

Plans = dict[str, list[Plan]]


def run(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def plans() -> Plans:
    """Each statement's plan; what it would do is undone."""
    first = Execution.objects.filter(status="enqueued").order_by("id").values_list("pk", flat=True)[0]
    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        load([first], using="default")
    return {
        "claim": [claim_plan(())],
        "claim of named queues": [claim_plan(("default",))],
        "load": recorder.plans,
        "next due": [plan_of(seconds_until_due, using="default")],
    }


def claim_plan(queues: tuple[str, ...]) -> Plan:
    return plan_of(
        claim,
        Execution,
        owner="worker-a",
        token=uuid.uuid4(),
        limit=10,
        lease_seconds=30,
        kinds=[NAME],
        queues=queues,
        columns=_COLUMNS,
        using="default",
    )


@pytest.fixture(scope="module", params=[nullcontext, statements_kept], ids=["in full", "kept"])
def seen(
    django_db_setup: None, django_db_blocker: Any, request: pytest.FixtureRequest
) -> Iterator[dict[str, Plans]]:
    """Plans with 500 that can go on, alone; on 200,000 ended ones; and on 100,000 sleeping ones besides."""
    with django_db_blocker.unblock(), request.param():
        try:
            run(EMPTY, ENQUEUED, ANALYZE)
            found = {"alone": plans()}
            run(ENDED, ANALYZE)
            found["ended"] = plans()
            run(SLEEPING, STEPS, ANALYZE)
            found["sleeping"] = plans()
            yield found
        finally:
            run(EMPTY)
            connection.close()


@pytest.mark.django_db
@pytest.mark.parametrize("beneath", ["ended", "sleeping"])
@pytest.mark.parametrize("statement", ["claim", "claim of named queues"])
def test_the_claim_does_not_see_what_lies_beneath(
    seen: dict[str, Plans], statement: str, beneath: str
) -> None:
    [alone], [plan] = seen["alone"][statement], seen[beneath][statement]

    before, after = alone.part("due"), plan.part("due")
    assert after.indexes() == before.indexes() <= {"pgjobs_execution_claim", "pgjobs_queuepause_once"}, plan
    # Up to two more for each of the ten rows: they lie on pages of their own, with what the last test left there.
    assert after.buffers <= before.buffers + 20, f"{alone}\n\n{plan}"
    assert plan.seq_scans() == [] and plan.sorted_rows() <= 10, plan


@pytest.mark.django_db
def test_a_history_is_read_by_its_index(seen: dict[str, Plans]) -> None:
    steps, waits = seen["sleeping"]["load"]

    for plan in (steps, waits):
        assert plan.seq_scans() == [] and plan.buffers <= FLAT, plan


@pytest.mark.django_db
def test_the_sweeper_looks_at_the_first_sleeper_only(seen: dict[str, Plans]) -> None:
    [plan] = seen["sleeping"]["next due"]

    assert plan.indexes() == {"pgjobs_wait_due"} and plan.buffers <= FLAT, plan


@pytest.mark.django_db
def test_a_sweep_reads_what_is_due(seen: dict[str, Plans]) -> None:
    run(
        "UPDATE pgjobs_wait SET wake_at = now() - interval '1 s' WHERE id IN (SELECT id FROM pgjobs_wait LIMIT 5)"
    )
    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        assert sweep_due(using="default", limit=100) == 5

    search = recorder.plans[0]
    assert "pgjobs_wait_due" in search.indexes() and search.seq_scans() == [], search
    assert search.buffers <= FLAT, search
