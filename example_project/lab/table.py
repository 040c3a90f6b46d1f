"""The lab's own tables: jobs for the plain strategies, and the claim log, one row for every hand-out."""

import psycopg

CREATE = """
    CREATE TABLE lab_job (
        id bigint PRIMARY KEY,
        status text NOT NULL DEFAULT 'pending',
        priority smallint NOT NULL DEFAULT 100,
        available_at timestamptz NOT NULL DEFAULT now(),
        attempt_count integer NOT NULL DEFAULT 0,
        lease_owner text,
        completed_at timestamptz
    ) WITH (fillfactor = 70);
    CREATE INDEX lab_job_claim ON lab_job (priority, available_at, id) WHERE status = 'pending';
    CREATE TABLE claim_log (job bigint NOT NULL, worker text NOT NULL, claimed_at timestamptz NOT NULL,
        latency_ms double precision)"""
CLEAR = "TRUNCATE lab_job, claim_log"
SEED = "INSERT INTO lab_job (id) SELECT number FROM generate_series(1, %s) AS number"
LOG = "COPY claim_log (job, worker, claimed_at, latency_ms) FROM STDIN"


def create(connection: psycopg.Connection) -> None:
    connection.execute(CREATE)


def seed(connection: psycopg.Connection, jobs: int) -> None:
    """Only these jobs, numbered from 1, all due."""
    connection.execute(CLEAR)
    connection.execute(SEED, [jobs])
    connection.execute("VACUUM ANALYZE lab_job")


def write_log(connection: psycopg.Connection, entries: list[tuple[object, ...]]) -> None:
    """Job, worker, time by the database's clock, and milliseconds that the claim took."""
    with connection.cursor() as cursor, cursor.copy(LOG) as copy:
        for entry in entries:
            copy.write_row(entry)
