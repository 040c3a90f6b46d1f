"""What the lease room's claim hands out for executions: each with its whole history."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pgjobs.leases.claim import claim
from pgjobs.leases.lanes import Position
from pgjobs.leases.states import Lease
from pgjobs.workflows.history import History, load
from pgjobs.workflows.models import Execution

_COLUMNS = (
    "leased.id",
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


def claim_executions(
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
) -> list[ClaimedExecution]:
    """Claim up to ``limit`` executions that can go on, best first, and load their histories in two queries."""
    found = claim(
        Execution,
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
    if not found:
        return []
    histories = load([row[0] for row in found], using=using)
    return [
        ClaimedExecution(Lease(pk, token, owner, "execution"), histories[pk], *rest) for pk, *rest in found
    ]
