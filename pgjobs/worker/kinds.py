"""The kinds of leased rows that a worker carries: how each is named, claimed, and told about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgjobs.leases.models import LeasedRow
from pgjobs.leases.reap import OnExhausted
from pgjobs.queue import awaited
from pgjobs.queue.attempts import ClaimedJob
from pgjobs.queue.claiming import claim_jobs
from pgjobs.queue.models import Job
from pgjobs.queue.registry import registry
from pgjobs.workflows.claiming import ClaimedExecution, claim_executions
from pgjobs.workflows.models import Execution
from pgjobs.workflows.registry import workflows

Claimed = ClaimedJob | ClaimedExecution


@dataclass(frozen=True, slots=True)
class Kind:
    """One leased table."""

    model: type[LeasedRow]
    names: Callable[[], list[str]]
    """What this process can run."""
    claim: Callable[..., list[Any]]
    on_exhausted: OnExhausted | None
    """Told in the transaction that spends the crash budget."""


JOBS = Kind(Job, registry.names, claim_jobs, awaited.announce)
EXECUTIONS = Kind(Execution, workflows.names, claim_executions, None)
KINDS = (JOBS, EXECUTIONS)


def known_kinds() -> list[Kind]:
    """The kinds of which this process knows at least one name: only those are asked for."""
    return [kind for kind in KINDS if kind.names()]
