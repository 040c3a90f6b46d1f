"""Another session keeps a snapshot while jobs churn: nothing that dies can be cleared away."""

import os

import psycopg

from example_project.benchmark import backlog
from example_project.benchmark.bench import Bench

LAST_FIFTH = """
    WITH done AS (
        SELECT completed_at, percent_rank() OVER (ORDER BY completed_at) AS part FROM pgjobs_job
    )
    SELECT count(*) / nullif(extract(epoch FROM max(completed_at) - min(completed_at)), 0)::float8
    FROM done WHERE part >= 0.8"""


def measure(bench: Bench) -> dict[str, float]:
    """The rate of the last fifth of the jobs behind a snapshot, over that of the last fifth without one."""
    free = _last_fifth(bench)
    bench.clear()
    with psycopg.connect(os.environ["DATABASE_URL"]) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT 1")  # no table, so that no lock stands in anybody's way
        held = _last_fifth(bench)
    return {"behind_snapshot": held / free}


def _last_fifth(bench: Bench) -> float:
    backlog.drain(bench, bench.sizes.churn)
    (rate,) = bench.one(LAST_FIFTH)
    return rate
