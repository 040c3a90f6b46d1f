"""The states of a job and the table of legal moves; constraints and docs/states.md are built from here."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models


class JobStatus(models.TextChoices):
    """Where a job stands."""

    PENDING = "pending", "pending"
    """Waits for its time, for a free slot, or for a worker that knows its type."""
    RUNNING = "running", "running"
    """Claimed: one worker holds the lease."""
    SUCCEEDED = "succeeded", "succeeded"
    """Done; the result is stored."""
    FAILED = "failed", "failed"
    """The handler said that it can never work."""
    DEAD = "dead", "dead"
    """A budget is spent: attempts (exceptions) or crashes (dead workers)."""
    CANCELLED = "cancelled", "cancelled"
    """Stopped by a person or by code."""


@dataclass(frozen=True, slots=True)
class Move:
    """One arrow of the state machine."""

    source: JobStatus
    target: JobStatus
    verb: str
    meaning: str


_S = JobStatus

MOVES: tuple[Move, ...] = (
    Move(_S.PENDING, _S.RUNNING, "claim", "a worker takes the lease; the attempt is counted"),
    Move(_S.PENDING, _S.CANCELLED, "cancel", "stopped before it ran"),
    Move(_S.RUNNING, _S.SUCCEEDED, "finish", "the handler returned, or left ctx.finish()"),
    Move(_S.RUNNING, _S.PENDING, "retry", "the handler raised, and attempts are left"),
    Move(_S.RUNNING, _S.PENDING, "snooze", "the handler asked to come later; no attempt spent"),
    Move(_S.RUNNING, _S.PENDING, "release", "the worker shut down in order; no attempt spent"),
    Move(_S.RUNNING, _S.PENDING, "reap", "the worker died; a crash is spent"),
    Move(_S.RUNNING, _S.FAILED, "fail", "the handler raised Fail, or its result cannot be stored"),
    Move(_S.RUNNING, _S.DEAD, "give up", "the last attempt raised"),
    Move(_S.RUNNING, _S.DEAD, "bury", "the worker died and the crash budget is spent"),
    Move(_S.RUNNING, _S.CANCELLED, "cancel", "stopped while it ran; the holder loses its lease"),
    Move(_S.RUNNING, _S.PENDING, "operator release", "a person takes it from a lost or stuck holder"),
    Move(_S.FAILED, _S.PENDING, "operator retry", "a person tries again; the history stays"),
    Move(_S.DEAD, _S.PENDING, "operator retry", "a person tries again; the history stays"),
    Move(_S.CANCELLED, _S.PENDING, "operator retry", "a person tries again; the history stays"),
)

TERMINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.DEAD, _S.CANCELLED})
"""A job here moves no more by itself."""

RETRYABLE = frozenset(move.source for move in MOVES if move.verb == "operator retry")
"""From where a person may send a job back."""

CANCELLABLE = frozenset(move.source for move in MOVES if move.verb == "cancel")
"""From where a job may be cancelled."""

RELEASABLE = frozenset(move.source for move in MOVES if move.verb == "operator release")
"""From where a person may take a job from its holder."""

DISCARDABLE = RETRYABLE
"""From where a job may be put out of sight; that is a mark on the row, not a status."""
