"""A session that keeps statements plans them once: a plan made for an empty table must do for a full one."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from pgjobs import sessions
from pgjobs.leases.claim import _claim_sql
from pgjobs.leases.due import outlook_sql
from pgjobs.leases.lanes import Position
from pgjobs.queue.claiming import _COLUMNS
from pgjobs.queue.models import Job
from pgjobs.queue.settle import _SUCCEED_SQL, _SUCCEED_WITHOUT_RESULTS_SQL
from tests.leases.factories import KIND
from tests.leases.plans import Plan, by_name, explain
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db(transaction=True)

ENDED = """INSERT INTO pgjobs_job (job_type, status, completed_at, completed_by, attempt_count)
    SELECT 'tests.work', 'succeeded', now(), 'worker-a', 1 FROM generate_series(1, 50000) AS n"""
DUE = "INSERT INTO pgjobs_job (job_type) SELECT 'tests.work' FROM generate_series(1, 50000) AS n"
RUNNING = """UPDATE pgjobs_job SET status = 'running', lease_owner = 'w', lease_token = %s, lease_expires_at = now()
    WHERE id = ANY(%s)"""
MOST = 150  # buffers for ten rows; the table has more than a thousand
TOKEN = str(uuid.uuid4())


def statements() -> dict[str, tuple[str, dict[str, Any]]]:
    claim = {
        "owner": "w",
        "token": TOKEN,
        "lease_seconds": 30,
        "kinds": [KIND],
        "queues": ["default"],
        "limit": 10,
    }
    known = Position()
    known.note([(100, 0.0, 0, "default")])
    settled = {
        "ids": "{" + ",".join(str(70_000 + n) for n in range(10)) + "}",
        "tokens": "{" + ",".join([TOKEN] * 10) + "}",
    }
    return {
        "every": (_claim_sql(Job, "all", _COLUMNS, QUEUE), claim),
        "named": (_claim_sql(Job, "named", _COLUMNS, QUEUE), claim),
        "known": (_claim_sql(Job, "known", _COLUMNS, QUEUE), claim | known.params()),
        "suspects": (_claim_sql(Job, "suspects", _COLUMNS, QUEUE), claim),
        "outlook": (outlook_sql(Job, named=False), claim),
        "settled": (_SUCCEED_WITHOUT_RESULTS_SQL, settled),
        "settled_with_results": (_SUCCEED_SQL, settled | {"results": "{1,2,3,4,5,6,7,8,9,10}"}),
    }


@pytest.fixture
def run() -> Iterator[Callable[..., None]]:
    def run(sql: str, params: Any = None) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql, params)

    yield run
    for setting in sessions.PLANNING:
        run(f"RESET {setting}")
    run("DEALLOCATE ALL")


def test_a_plan_made_on_the_empty_table_does_for_the_full_one(run: Callable[..., None]) -> None:
    for setting, value in sessions.PLANNING.items():
        run(f"SET {setting} = {value}")
    run("TRUNCATE pgjobs_job RESTART IDENTITY CASCADE")
    run("VACUUM ANALYZE pgjobs_job")
    kept = {name: (*by_name(sql, name), params) for name, (sql, params) in statements().items()}
    for prepare, execute, params in kept.values():
        run(prepare)
        run(execute, params)

    with transaction.atomic(using=QUEUE):  # until it commits no statistics of it come from elsewhere
        run(ENDED)
        run(DUE)
        run(RUNNING, [TOKEN, list(range(70_000, 70_010))])
        plans = {name: explain(execute, params) for name, (_, execute, params) in kept.items()}

    told = "\n\n".join(f"{name}:\n{plan}" for name, plan in plans.items())
    assert all(plan.buffers < MOST for plan in plans.values()), told
    assert moved(plans) == {
        "every": 10,
        "named": 10,
        "known": 10,
        "settled": 10,
        "settled_with_results": 10,
    }, told


def moved(plans: dict[str, Plan]) -> dict[str, int]:
    return {
        name: plan.node["Actual Rows"]
        for name, plan in plans.items()
        if plan.node["Node Type"] == "ModifyTable" and plan.node["Actual Rows"]
    }
