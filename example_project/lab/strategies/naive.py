"""Select a pending row, then update it. Between the two statements anybody else selects the same row."""

import psycopg

from example_project.lab.strategies import Claim

SELECT = "SELECT id FROM lab_job WHERE status = 'pending' ORDER BY priority, available_at, id LIMIT 1"
TAKE = """
    UPDATE lab_job SET status = 'running', lease_owner = %s, attempt_count = attempt_count + 1
    WHERE id = %s RETURNING id, clock_timestamp()"""
SETTLE = "UPDATE lab_job SET status = 'succeeded', completed_at = clock_timestamp() WHERE id = %s"


def claim(connection: psycopg.Connection, worker: str) -> Claim | None:
    found = connection.execute(SELECT).fetchone()
    return connection.execute(TAKE, [worker, found[0]]).fetchone() if found else None


def settle(connection: psycopg.Connection, worker: str, job: int) -> None:
    connection.execute(SETTLE, [job])
