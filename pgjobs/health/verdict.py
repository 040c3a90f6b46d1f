"""What an examination comes to: problems with their code, since when and why, and what could not be looked at."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad it is."""

    CRITICAL = "critical"
    """Work stands still."""
    WARNING = "warning"
    """It will hurt, or hurts already."""
    NOTE = "note"
    """Somebody wanted it so; worth knowing."""


CODES: Mapping[str, tuple[Severity, str]] = {
    "NO_WORKER": (Severity.CRITICAL, "due work in a queue that no live worker serves"),
    "STALLED": (
        Severity.CRITICAL,
        "work waits, all slots are taken or stand still, and nothing has ended for 5 min",
    ),
    "LEASE_LOST": (Severity.CRITICAL, "leases have lapsed and nobody takes the rows back"),
    "WEDGED": (Severity.CRITICAL, "a worker's heart beats, but its claim loop stands"),
    "LATE": (Severity.WARNING, "the oldest due work of a queue waits longer than QUEUE_SLO_SECONDS"),
    "DEAD_NEW": (Severity.WARNING, "jobs die of a cause not seen before, or ten times as often as usual"),
    "DEAD_TOTAL": (Severity.WARNING, "more dead and failed jobs than DEAD_ALERT"),
    "UNKNOWN_TYPES": (Severity.WARNING, "due work of types that no live worker of its queue knows"),
    "PAUSED_EXECUTIONS": (Severity.WARNING, "workflow executions are paused until a person resumes them"),
    "APPROVAL_OVERDUE": (Severity.WARNING, "approvals are past their time and nobody has resolved them"),
    "WAIT_OVERDUE": (
        Severity.WARNING,
        "sleeps and time-outs of workflows are due and no worker has ended them",
    ),
    "PAUSED": (Severity.NOTE, "a queue or a job type is paused"),
    "WORKER_SILENT": (Severity.WARNING, "a worker went silent in the last hour without a goodbye"),
    "VERSION_SKEW": (
        Severity.WARNING,
        "live workers have run different versions of the code for over 15 min",
    ),
    "BULK_STUCK": (Severity.WARNING, "a bulk operation makes no progress"),
    "DB_HORIZON": (Severity.WARNING, "an old transaction holds back vacuum, or dead rows pile up"),
    "STATS_STALE": (Severity.WARNING, "jobs end, but the figures per minute are old"),
}
"""Every rule by its code, in the order in which problems are told."""

RANKS = {code: rank for rank, code in enumerate(CODES)}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    code: str
    why: str
    """A sentence with figures. Without secrets, but from rows: to be escaped."""
    cure: str
    since: dt.datetime | None = None
    queue: str = ""
    """The queue it is about, if it is about one."""
    kind: str = ""
    """What ``target`` names: "queue", "worker", "fingerprint", "job", "execution", "job_type", "workflow", "bulk"; or
    nothing."""
    target: str = ""

    @property
    def severity(self) -> Severity:
        """By its code."""
        return CODES[self.code][0]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "since": self.since.isoformat() if self.since else None,
            "why": self.why,
            "cure": self.cure,
            "queue": self.queue,
            "kind": self.kind,
            "target": self.target,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """All of it. "ok" only when every rule could be looked at and none found anything."""

    checked_at: dt.datetime | None
    """By the database's clock; None when the database did not answer."""
    problems: list[Problem] = field(default_factory=list)
    """The worst first."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Code -> why that rule could not be looked at."""

    @property
    def state(self) -> str:
        """ "ok", "problem" or "unknown"."""
        return "problem" if self.problems else "unknown" if self.unknown else "ok"

    def only(self, codes: Iterable[str], queue: str | None = None) -> Verdict:
        """The part about these rules, and about one queue."""
        wanted = set(codes) or set(CODES)
        problems = [p for p in self.problems if p.code in wanted and queue in (None, p.queue)]
        return Verdict(
            self.checked_at, problems, {code: why for code, why in self.unknown.items() if code in wanted}
        )

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        if self.problems:
            count = len(self.problems)
            first = self.problems[0]
            return f"{count} {'problem' if count == 1 else 'problems'}. First: {first.why}"
        if self.unknown:
            code, why = next(iter(self.unknown.items()))
            return f"Cannot tell: {code} could not be looked at ({why})"
        return "Nothing is stuck"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": 1,
            "status": self.state,
            "checked_at": self.checked_at.isoformat() if self.checked_at else None,
            "problems": [problem.as_dict() for problem in self.problems],
            "unknown": self.unknown,
        }


def ranked(problems: Iterable[Problem]) -> list[Problem]:
    """The order of the rules; within one, the oldest first."""
    return sorted(
        problems, key=lambda p: (RANKS[p.code], p.since.timestamp() if p.since else 0.0, p.queue, p.target)
    )
