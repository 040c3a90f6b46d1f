"""The drain above rows that are not its business: completed ones, and future ones at better priorities."""

from django.db import connection

from example_project.benchmark import backlog
from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import QUEUE, noop

COMPLETED = """
    INSERT INTO pgjobs_job (job_type, queue, status, attempt_count, started_at, completed_at, completed_by)
    SELECT %s, %s, 'succeeded', 1, now(), now(), 'seed' FROM generate_series(1, %s)"""
FUTURE = """
    INSERT INTO pgjobs_job (job_type, queue, priority, available_at)
    SELECT %s, %s, 10 * (1 + number %% 5), now() + interval '1 day' + number * interval '1 second'
    FROM generate_series(1, %s) AS number"""
SETTLE = "VACUUM ANALYZE pgjobs_job"
MAY_CHECKPOINT = "SELECT pg_has_role('pg_checkpoint', 'MEMBER')::int"


def completed(bench: Bench) -> dict[str, float]:
    return {"above_completed": _kept(bench, COMPLETED, bench.sizes.completed)}


def future(bench: Bench) -> dict[str, float]:
    return {"behind_future": _kept(bench, FUTURE, bench.sizes.future)}


def _kept(bench: Bench, seed: str, count: int) -> float:
    """What part of the rate on an empty table is left above ``count`` such rows."""
    free = _settled_rate(bench)
    bench.clear()
    with connection.cursor() as cursor:
        cursor.execute(seed, [noop.job_type, QUEUE, count])
    return _settled_rate(bench) / free


def _settled_rate(bench: Bench) -> float:
    """What was loaded is written out before: half a gigabyte would be written while it is measured what lies on it."""
    with connection.cursor() as cursor:
        cursor.execute(SETTLE)
        if bench.one(MAY_CHECKPOINT) == (1,):
            cursor.execute("CHECKPOINT")
    return backlog.typical_rate(bench)
