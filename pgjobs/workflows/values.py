"""What durable calls answer with: plain values, the same in the first run and in every replay."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Decision:
    """How an approval ended."""

    approved: bool
    by: str | None = None
    """Username of the user whose decision was the last needed; None when time decided."""
    at: dt.datetime | None = None
    reason: str = ""
    data: Any = None
    timed_out: bool = False

    def __bool__(self) -> bool:
        return self.approved


@dataclass(frozen=True, slots=True)
class JobFailure:
    """A job of a gather that ended without success, where it was tolerated."""

    index: int
    job_id: int
    status: str
    error: str


class Gathered(list[Any]):
    """The results in the order of the calls; None where a job failed, was tolerated, or was not waited for."""

    def __init__(self, results: list[Any], failures: list[JobFailure]) -> None:
        super().__init__(results)
        self.failures = failures


class AtomicStep:
    """What ``ctx.atomic`` gives to its block: set ``output`` to what replays shall see."""

    def __init__(self, output: Any = None) -> None:
        self.output = output


class Draws:
    """UUIDs and random numbers that are the same whenever the code that draws them runs again."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._drawn = 0
        self.random = random.Random(seed)

    def uuid(self) -> uuid.UUID:
        """The next one."""
        self._drawn += 1
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed}:{self._drawn}")


class ExecutionVerbs(Protocol):
    """What can be done to one execution through its model."""

    def signal(self, pk: int, name: str, payload: Any) -> None:
        """Send a signal."""
        ...

    def cancel(self, pk: int, *, actor: Any, reason: str) -> bool:
        """Stop it; False when it had ended."""
        ...

    def result(self, pk: int, timeout: float | None) -> Any:
        """Wait for the end and return the output."""
        ...
