"""Claim, commit, work, settle: locked rows are passed over, and no transaction is open during the work."""

import psycopg

from example_project.lab.strategies import Claim

CLAIM = """
    WITH next AS MATERIALIZED (
        SELECT id FROM lab_job WHERE status = 'pending'
        ORDER BY priority, available_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    UPDATE lab_job AS job SET status = 'running', lease_owner = %s, attempt_count = attempt_count + 1
    FROM next WHERE job.id = next.id RETURNING job.id, clock_timestamp()"""
SETTLE = """
    UPDATE lab_job SET status = 'succeeded', completed_at = clock_timestamp()
    WHERE id = %s AND status = 'running' AND lease_owner = %s"""


def claim(connection: psycopg.Connection, worker: str) -> Claim | None:
    return connection.execute(CLAIM, [worker]).fetchone()


def settle(connection: psycopg.Connection, worker: str, job: int) -> None:
    connection.execute(SETTLE, [job, worker])
