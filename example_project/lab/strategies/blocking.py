"""Lock the row while claiming, without SKIP LOCKED: correct, but all claimers queue up behind the same row."""

import psycopg

from example_project.lab.strategies import Claim

CLAIM = """
    WITH next AS MATERIALIZED (
        SELECT id FROM lab_job WHERE status = 'pending'
        ORDER BY priority, available_at, id LIMIT 1 FOR UPDATE
    )
    UPDATE lab_job AS job SET status = 'running', lease_owner = %s, attempt_count = attempt_count + 1
    FROM next WHERE job.id = next.id RETURNING job.id, clock_timestamp()"""
SETTLE = """
    UPDATE lab_job SET status = 'succeeded', completed_at = clock_timestamp()
    WHERE id = %s AND status = 'running' AND lease_owner = %s"""
PENDING = "SELECT EXISTS (SELECT FROM lab_job WHERE status = 'pending')"


def claim(connection: psycopg.Connection, worker: str) -> Claim | None:
    # A row that was taken while we waited for its lock may leave us with nothing, though others are pending.
    while True:
        claimed = connection.execute(CLAIM, [worker]).fetchone()
        if claimed is not None or connection.execute(PENDING).fetchone() == (False,):
            return claimed


def settle(connection: psycopg.Connection, worker: str, job: int) -> None:
    connection.execute(SETTLE, [job, worker])
