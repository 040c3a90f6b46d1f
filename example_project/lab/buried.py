"""The product's own claim on tables of several depths: its plan, its buffers, and the size of its index."""

from dataclasses import dataclass

import psycopg

from example_project.lab.explain import TABLE, explain
from example_project.lab.jobs import QUEUE, sleep_ms
from example_project.lab.laboratory import Laboratory
from example_project.lab.plan import START_SECONDS

CLAIM_INDEX = "pgjobs_job_claim"
FULL_INDEX = "full_index"
PENDING = """
    INSERT INTO pgjobs_job (job_type, queue, payload)
    SELECT %s, %s, '{"milliseconds": 1}' FROM generate_series(1, %s)"""
COMPLETED = """
    INSERT INTO pgjobs_job (job_type, queue, payload, status, attempt_count, started_at, completed_at, completed_by)
    SELECT %s, %s, '{"milliseconds": 1}', 'succeeded', 1, now(), now(), 'seed' FROM generate_series(1, %s)"""
FUTURE = """
    INSERT INTO pgjobs_job (job_type, queue, payload, priority, available_at)
    SELECT %s, %s, '{"milliseconds": 1}', 10, now() + interval '1 day' + number * interval '1 second'
    FROM generate_series(1, %s) AS number"""
DROP_INDEX = f"DROP INDEX {CLAIM_INDEX}"
MAKE_FULL_INDEX = f"CREATE INDEX {FULL_INDEX} ON pgjobs_job (queue, priority, available_at, id)"
BYTES = "SELECT pg_relation_size(%s::regclass)"
TAKE_SNAPSHOT = "SELECT 1"  # no table, so that no lock stands in the way of emptying them
CHURN_SLOTS = 50

EMPTY, DEEP, UNINDEXED, AHEAD, DEAD = (
    "nothing beneath",
    "completed rows beneath",
    "the same without the index",
    "future jobs at a better priority",
    "dead rows behind a snapshot",
)


@dataclass(frozen=True)
class Depth:
    """One claim of one job on one table."""

    table: str
    pending: int
    beneath: int
    """Rows that are not to be claimed."""
    table_bytes: int
    node: str
    """How the plan reads the jobs."""
    index: str
    find_buffers: int
    """Pages touched to find and lock the job."""
    buffers: int
    """Pages touched by the whole claim, its update included."""
    milliseconds: float


@dataclass(frozen=True)
class IndexSize:
    index: str
    rows: int
    bytes: int


def measure(lab: Laboratory) -> tuple[list[Depth], list[IndexSize]]:
    """Every depth of the plan, on tables that are emptied in between."""
    plan, connection = lab.plan, lab.connection
    lab.progress.step("buried table", plan.buried_seconds())
    claim = lab.product.run(1, 1, 0, seconds=START_SECONDS, tick=lab.progress.tick).statement
    lab.product.clear()
    _insert(connection, PENDING, plan.pending)
    depths = [_depth(lab, claim, EMPTY, 0)]
    _insert(connection, COMPLETED, plan.completed)
    lab.progress.tick()
    depths.append(_depth(lab, claim, DEEP, plan.completed))
    unindexed, sizes = _without_index(lab, claim)
    depths.append(unindexed)
    lab.progress.tick()
    lab.product.clear()
    _insert(connection, PENDING, plan.pending)
    _insert(connection, FUTURE, plan.future)
    depths.append(_depth(lab, claim, AHEAD, plan.future))
    depths.append(_behind_snapshot(lab, claim))
    lab.product.clear()
    return depths, sizes


def _without_index(lab: Laboratory, claim: str) -> tuple[Depth, list[IndexSize]]:
    """The index is gone only inside a transaction that is rolled back; a full one is made there to be weighed."""
    plan, connection = lab.plan, lab.connection
    partial = IndexSize("partial, as pgjobs has it", plan.pending, _bytes(connection, CLAIM_INDEX))
    with connection.transaction(force_rollback=True):
        connection.execute(DROP_INDEX)
        depth = _depth(lab, claim, UNINDEXED, plan.completed, tries=1)
        connection.execute(MAKE_FULL_INDEX)
        rows = plan.pending + plan.completed
        full = IndexSize("full, on the same columns", rows, _bytes(connection, FULL_INDEX))
    return depth, [partial, full]


def _behind_snapshot(lab: Laboratory, claim: str) -> Depth:
    """Real workers claim and settle the jobs while a transaction keeps every old version of their rows alive."""
    plan = lab.plan
    with psycopg.connect(lab.url, application_name="pgjobs_lab_snapshot") as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute(TAKE_SNAPSHOT)
        lab.product.run(
            CHURN_SLOTS,
            plan.dead,
            0,
            seconds=plan.churn_seconds(),
            tick=lab.progress.tick,
            pause=0.5,
            shape=(1, CHURN_SLOTS),
        )
        _insert(lab.connection, PENDING, plan.pending)
        return _depth(lab, claim, DEAD, plan.dead)


def _bytes(connection: psycopg.Connection, relation: str) -> int:
    row = connection.execute(BYTES, [relation]).fetchone()
    assert row is not None
    return int(row[0])


def _insert(connection: psycopg.Connection, statement: str, rows: int) -> None:
    connection.execute(statement, [sleep_ms.job_type, QUEUE, rows])
    connection.execute("VACUUM ANALYZE pgjobs_job")


def _depth(lab: Laboratory, claim: str, name: str, beneath: int, tries: int = 5) -> Depth:
    found = explain(lab.connection, claim, tries)
    return Depth(
        table=name,
        pending=lab.plan.pending,
        beneath=beneath,
        table_bytes=_bytes(lab.connection, TABLE),
        node=found.node,
        index=found.index,
        find_buffers=found.find_buffers,
        buffers=found.buffers,
        milliseconds=found.milliseconds,
    )
