"""The yardstick: claim a batch, call a function for each, settle the batch with results. Fenced, and nothing more."""

import json
import signal
import time
import uuid
from collections.abc import Iterable
from types import FrameType

import psycopg

from example_project.benchmark.peers import program

BATCH = 100
IDLE_SECONDS = 0.05
SCHEMA = """
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload jsonb NOT NULL DEFAULT '{}',
    status text NOT NULL DEFAULT 'pending',
    lease_token uuid,
    started_at timestamptz,
    completed_at timestamptz,
    result jsonb
);
CREATE INDEX job_claim ON job (id) WHERE status = 'pending'"""
CLAIM = """
WITH due AS MATERIALIZED (
    SELECT id FROM job WHERE status = 'pending' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE job SET status = 'running', lease_token = %s, started_at = clock_timestamp()
FROM due WHERE job.id = due.id RETURNING job.id, job.payload"""
SETTLE = """
UPDATE job SET status = 'succeeded', lease_token = NULL, completed_at = clock_timestamp(), result = done.result::jsonb
FROM unnest(%s::bigint[], %s::text[]) AS done(id, result)
WHERE job.id = done.id AND job.status = 'running' AND job.lease_token = %s"""


def noop() -> None:
    """No work at all."""


def prepare() -> None:
    with psycopg.connect(program.database(), autocommit=True) as connection:
        connection.execute(SCHEMA)


def single(numbers: Iterable[int]) -> float:
    """INSERT and commit by psycopg, one at a time."""
    with psycopg.connect(program.database(), autocommit=True) as connection:
        return program.timed(
            lambda: [
                connection.execute("INSERT INTO job (payload) VALUES (%s)", [json.dumps({"number": number})])
                for number in numbers
            ]
        )


def bulk(count: int) -> float:
    """COPY, in one transaction."""
    with psycopg.connect(program.database()) as connection:

        def copy() -> None:
            with connection.cursor().copy("COPY job (payload) FROM STDIN") as rows:
                for _ in range(count):
                    rows.write_row(["{}"])
            connection.commit()

        return program.timed(copy)


def work() -> None:
    going = True

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, stop)
    with psycopg.connect(program.database(), autocommit=True) as connection:
        connection.prepare_threshold = 0
        while going:
            token = uuid.uuid4()
            claimed = connection.execute(CLAIM, [BATCH, token]).fetchall()
            if not claimed:
                time.sleep(IDLE_SECONDS)
                continue
            results = [json.dumps(noop()) for _ in claimed]
            settled = connection.execute(SETTLE, [[pk for pk, _ in claimed], results, token])
            if settled.rowcount != len(claimed):
                raise SystemExit(f"{len(claimed) - settled.rowcount} jobs were lost to somebody else")


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single)
