"""One attempt as the worker carries it: what was claimed, and what it came to."""

from __future__ import annotations

from typing import NamedTuple

from pgjobs.leases.states import Lease
from pgjobs.queue.outcomes import Outcome


class ClaimedJob(NamedTuple):
    """A job in this process's hands. A tuple, since thousands are made in a second."""

    lease: Lease
    job_type: str
    payload: str
    """JSON text, decoded by the executor, so that one bad payload spoils one job and not the batch."""
    attempt: int
    """Number of this claim, 1 for the first."""
    crash_count: int
    max_attempts: int
    idempotency_key: str | None
    awaited: bool
    """Whether the transaction that ends it must tell somebody."""
    already_produced: bool
    queue: str = "default"
    waited: float = 0.0
    """Seconds from when it was due to when it was claimed, by the database's clock."""


class Ended(NamedTuple):
    """An attempt with its outcome, on its way to be settled."""

    job: ClaimedJob
    outcome: Outcome
    seconds: float = 0.0
    """How long the handler ran, by the worker's monotonic clock."""
