"""What the lease room's claim hands out for jobs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pgjobs.leases.claim import claim
from pgjobs.leases.lanes import Position
from pgjobs.leases.states import Lease
from pgjobs.queue.attempts import ClaimedJob
from pgjobs.queue.models import Job

_COLUMNS = (
    "leased.id",
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


def claim_jobs(
    *,
    owner: str,
    token: uuid.UUID,
    limit: int,
    lease_seconds: float,
    names: Sequence[str],
    queues: Sequence[str],
    suspects: bool,
    sharing: bool = False,
    position: Position | None = None,
    using: str,
) -> list[ClaimedJob]:
    """Claim up to ``limit`` due jobs, best first."""
    found = claim(
        Job,
        owner=owner,
        token=token,
        limit=limit,
        lease_seconds=lease_seconds,
        kinds=names,
        queues=queues,
        suspects=suspects,
        sharing=sharing,
        position=position,
        columns=_COLUMNS,
        using=using,
    )
    return [ClaimedJob(Lease(pk, token, owner), *rest) for pk, *rest in found]
