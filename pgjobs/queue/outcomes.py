"""What an attempt can come to: values. Handlers make them, only ``settle`` writes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned. ``result`` is JSON text or None."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class AlreadyExisted:
    """The idempotency key had a result; nothing was worked again."""

    key: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an attempt did not succeed, already storable."""

    kind: str
    type: str
    message: str
    traceback: str = ""
    frame: str = ""
    """The innermost frame of the project's own code, as "module:function"."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It can never work."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class Raised:
    """The attempt is spent; after ``delay`` seconds the next one, if any is left."""

    problem: Problem
    delay: float


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Not now; after ``delay`` seconds, with the attempt given back."""

    delay: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """``ctx.finish`` has committed the success already; nothing is left to write."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The handler stopped because its lease seemed lost; if it is not, the row is handed back unspent."""


Outcome = Succeeded | AlreadyExisted | Failed | Raised | Snoozed | Finished | Abandoned
