"""Rows in any state, as a worker or another service might have left them."""

import uuid
from datetime import timedelta
from typing import Any

from django.utils import timezone

from pgjobs.models import Job, Worker
from tests.support.own_database import connection

ENDED = ("succeeded", "failed", "dead", "cancelled")

# Mostly finished work, as in a real table: 2 % wait, the rest has ended; more are dead, and more failed, than a list
# counts, each on a page of the table of its own if it is large.
_BAD = 12_000
_SEED = """
INSERT INTO pgjobs_job (job_type, queue, payload, status, available_at, completed_at, last_error, priority)
SELECT CASE WHEN n %% 3 = 0 THEN 'jobsapp.ok' WHEN n %% 1000 = 1 THEN 'gone.type' ELSE 'jobsapp.echo' END,
       'queue-' || n %% 7, jsonb_build_object('n', n),
       CASE WHEN n %% 50 = 0 THEN 'pending' WHEN n %% %(every)s = 1 THEN 'dead' WHEN n %% %(every)s = 3 THEN 'failed'
            ELSE 'succeeded' END,
       now() - make_interval(secs => n), CASE WHEN n %% 50 = 0 THEN NULL ELSE now() - make_interval(secs => n) END,
       '', (100 + n %% 3)::smallint
FROM generate_series(1, %(rows)s) AS n"""


def make_job(status: str = "pending", **columns: Any) -> Job:
    """One row that the constraints allow."""
    now = timezone.now()
    values: dict[str, Any] = {"job_type": "jobsapp.ok", "status": status}
    if status == "running":
        values |= {
            "lease_owner": "host.1.abc",
            "lease_token": uuid.uuid4(),
            "lease_expires_at": now + timedelta(seconds=30),
            "heartbeat_at": now,
            "started_at": now,
            "attempt_count": 1,
        }
    if status in ENDED:
        values |= {"completed_at": now, "completed_by": "host.1.abc", "attempt_count": 1}
    return Job.objects.create(**(values | columns))


def make_worker(name: str = "host.1.abc", **columns: Any) -> Worker:
    """One process."""
    values: dict[str, Any] = {"host": "host", "pid": 4711, "version": "1", "queues": [], "slots": 10}
    return Worker.objects.create(name=name, **(values | columns))


def seed(rows: int) -> None:
    """A table of that many rows, with fresh statistics."""
    with connection.cursor() as cursor:
        # VACUUM marks a page as visible to all only when the commit of its rows is on disk.
        cursor.execute("SET synchronous_commit = on")
        cursor.execute(_SEED, {"rows": rows, "every": rows // _BAD})
        cursor.execute("VACUUM (ANALYZE) pgjobs_job, pgjobs_activity")  # of what tests have rolled back too


def unseed() -> None:
    """An empty table again."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgjobs_job")
        cursor.execute("VACUUM (ANALYZE) pgjobs_job")
