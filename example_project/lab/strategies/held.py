"""One transaction across the work: the row lock is the claim. Cheap to claim, and the transaction stays open."""

import psycopg

from example_project.lab.strategies import Claim

CLAIM = """
    SELECT id, clock_timestamp() FROM lab_job WHERE status = 'pending'
    ORDER BY priority, available_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"""
SETTLE = """
    UPDATE lab_job SET status = 'succeeded', lease_owner = %s, attempt_count = attempt_count + 1,
        completed_at = clock_timestamp()
    WHERE id = %s"""


def claim(connection: psycopg.Connection, worker: str) -> Claim | None:
    connection.execute("BEGIN")
    claimed = connection.execute(CLAIM).fetchone()
    if claimed is None:
        connection.execute("ROLLBACK")
    return claimed


def settle(connection: psycopg.Connection, worker: str, job: int) -> None:
    connection.execute(SETTLE, [worker, job])
    connection.execute("COMMIT")
