"""Ended jobs by the hundred, without a worker for each."""

from collections.abc import Callable

import pytest

from tests.support.own_database import connection

Ended = Callable[..., list[int]]

# As they stand after their last attempt; a test of bulk operations is not about how they came there.
_SEED = """
INSERT INTO pgjobs_job (job_type, queue, status, payload, attempt_count, max_attempts, completed_at, created_at)
SELECT %(job_type)s, %(queue)s, %(status)s, '{}', 1, 1,
       CASE WHEN %(status)s <> 'pending' THEN statement_timestamp() - make_interval(secs => 3600 - n / 1000.0) END,
       statement_timestamp() - interval '2 hours'
FROM generate_series(1, %(jobs)s) AS n RETURNING id"""


@pytest.fixture
def ended(db: None) -> Ended:
    """Makes so many jobs of a status and returns their ids, ascending."""

    def make(
        jobs: int, *, status: str = "dead", queue: str = "billing", job_type: str = "jobsapp.ok"
    ) -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(_SEED, {"jobs": jobs, "status": status, "queue": queue, "job_type": job_type})
            return sorted(pk for (pk,) in cursor.fetchall())

    return make
