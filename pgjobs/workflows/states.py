"""The states of an execution and the kinds of its records; constraints and docs are built from here."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models


class ExecutionStatus(models.TextChoices):
    """Where an execution stands."""

    ENQUEUED = "enqueued", "enqueued"
    """Can go on: waits for a worker that knows its workflow."""
    RUNNING = "running", "running"
    """Claimed: one worker holds the lease."""
    WAITING = "waiting", "waiting"
    """Parked in its row: a sleep, an approval, a signal, jobs or a child. No lease, no slot."""
    PAUSED = "paused", "paused"
    """Needs a person: the code diverged from the history, or its worker died too often."""
    SUCCEEDED = "succeeded", "succeeded"
    """The body returned."""
    FAILED = "failed", "failed"
    """The body raised."""
    CANCELLED = "cancelled", "cancelled"
    """Stopped by a person or by code."""


@dataclass(frozen=True, slots=True)
class Move:
    """One arrow of the state machine."""

    source: ExecutionStatus
    target: ExecutionStatus
    verb: str


_S = ExecutionStatus

MOVES: tuple[Move, ...] = (
    Move(_S.ENQUEUED, _S.RUNNING, "claim"),
    Move(_S.RUNNING, _S.WAITING, "park"),
    Move(_S.RUNNING, _S.ENQUEUED, "release"),
    Move(_S.RUNNING, _S.ENQUEUED, "postpone"),
    Move(_S.RUNNING, _S.ENQUEUED, "reap"),
    Move(_S.RUNNING, _S.PAUSED, "reap"),
    Move(_S.RUNNING, _S.PAUSED, "pause"),
    Move(_S.RUNNING, _S.SUCCEEDED, "finish"),
    Move(_S.RUNNING, _S.FAILED, "fail"),
    Move(_S.WAITING, _S.ENQUEUED, "wake"),
    Move(_S.PAUSED, _S.ENQUEUED, "resume"),
    Move(_S.FAILED, _S.ENQUEUED, "retry"),
    Move(_S.ENQUEUED, _S.PAUSED, "pause"),
    Move(_S.WAITING, _S.PAUSED, "pause"),
    Move(_S.ENQUEUED, _S.CANCELLED, "cancel"),
    Move(_S.RUNNING, _S.CANCELLED, "cancel"),
    Move(_S.WAITING, _S.CANCELLED, "cancel"),
    Move(_S.PAUSED, _S.CANCELLED, "cancel"),
)

TERMINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
"""An execution here moves no more by itself."""


def sources(verb: str) -> frozenset[ExecutionStatus]:
    """From where ``verb`` may take an execution."""
    return frozenset(move.source for move in MOVES if move.verb == verb)


class WaitKind(models.TextChoices):
    """What a wait row waits for."""

    SLEEP = "sleep", "sleep"
    APPROVAL = "approval", "approval"
    SIGNAL = "signal", "signal"
    JOB = "job", "job"
    CHILD = "child", "child"


class StepKind(models.TextChoices):
    """What a step output records."""

    STEP = "step", "step"
    ATOMIC = "atomic", "atomic step"
    CHANGED = "changed", "code change marker"


class OnTimeout(models.TextChoices):
    """What an approval comes to when nobody decided in time."""

    REJECT = "reject", "reject"
    APPROVE = "approve", "approve"
    RAISE = "raise", "raise ApprovalTimeout"
