"""What the lease room's claim hands out for executions: each with its whole history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from pgjobs.leases.claim import Asked, leased
from pgjobs.leases.states import Lease
from pgjobs.workflows.history import History, load
from pgjobs.workflows.models import Execution

_COLUMNS = (
    "leased.workflow_name",
    "leased.version",
    "leased.key",
    "leased.input::text",
    "leased.attempt_count",
    "leased.crash_count",
    "leased.queue",
    "leased.priority",
    "leased.started_by",
    "COALESCE(leased.origin_at, leased.created_at)::text",
    "COALESCE(leased.origin_id, leased.id)",
)


@dataclass(frozen=True, slots=True)
class ClaimedExecution:
    """An execution in this process's hands."""

    lease: Lease
    history: History
    workflow_name: str
    version: int
    key: str | None
    input: str
    """JSON text."""
    attempt: int
    crash_count: int
    queue: str
    priority: int
    started_by: str
    created_at: str
    """When its history began: for a fork, with the execution it comes from."""
    origin: int
    """The execution that its history began with: itself, unless it is a fork."""


def claim_executions(**asked: Unpack[Asked]) -> list[ClaimedExecution]:
    """Claim up to ``limit`` executions that can go on, best first, and load their histories in two queries."""
    found = leased(Execution, _COLUMNS, asked)
    if not found:
        return []
    histories = load([lease.pk for lease, *_ in found], using=asked["using"])
    return [ClaimedExecution(lease, histories[lease.pk], *rest) for lease, *rest in found]
