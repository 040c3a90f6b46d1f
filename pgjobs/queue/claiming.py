"""What the lease room's claim hands out for jobs."""

from __future__ import annotations

from typing import Unpack

from pgjobs.leases.claim import Asked, leased
from pgjobs.queue.attempts import ClaimedJob
from pgjobs.queue.models import Job

_COLUMNS = (
    "leased.job_type",
    "leased.payload::text",
    "leased.attempt_count",
    "leased.crash_count",
    "leased.max_attempts",
    "leased.idempotency_key",
    "leased.awaited",
    # Answered with the claim, so that a job whose effect has landed before is never worked again.
    "leased.idempotency_key IS NOT NULL AND EXISTS (SELECT FROM pgjobs_jobresult AS produced "
    "WHERE produced.idempotency_key = leased.idempotency_key)",
    "leased.queue",
    "GREATEST(date_part('epoch', leased.started_at - leased.available_at), 0)",
)


def claim_jobs(**asked: Unpack[Asked]) -> list[ClaimedJob]:
    """Claim up to ``limit`` due jobs, best first."""
    return list(map(ClaimedJob._make, leased(Job, _COLUMNS, asked)))
