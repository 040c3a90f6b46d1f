"""What the lease protocol must know of a table, and what a holder carries."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

RUNNING = "running"
"""The one status in which a row has an owner. A database constraint ties it to the lease columns."""


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """How one table takes part in the protocol."""

    label: str
    """What a row is called in messages: "job"."""
    kind_column: str
    """The column that names what handles the row; a worker claims only kinds that it knows."""
    claimable: str
    """The status that is claimed, and that a row returns to."""
    exhausted: str
    """The status of a row whose crash budget is spent."""
    exhausted_reason_column: str
    """The text column that says why."""
    exhausted_is_final: bool
    """Whether ``completed_at`` is set then."""
    lost_class: str = ""
    """What the column ``error_class`` of a row says whose worker died; empty: the table has no such column."""
    lost_fingerprint: str = ""
    """SQL over the alias ``leased`` for its ``fingerprint``."""


class Lease(NamedTuple):
    """The right to work on one row: valid while the row still carries this token."""

    pk: int
    token: uuid.UUID
    owner: str
    label: str = "job"
