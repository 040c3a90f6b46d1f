"""What a workflow's context asks of the process that carries it. Two answer: the worker, and the dry run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pgjobs.queue.enqueue import NewJobs
from pgjobs.workflows.journal import StepRow
from pgjobs.workflows.lifecycle import NewExecution, NewWait, Standing

Enough = Callable[[Sequence[Standing]], bool]
"""Says of the standings of a call's waits whether the body can go on."""

Recording = Callable[[StepRow], dt.datetime]
"""Writes a step in the transaction that is open, and says when."""


class Durable(Protocol):
    """Carries the writes of one execution's turn."""

    def check(self) -> None:
        """Raises ``Stopped`` when the lease is lost."""
        ...

    def before(self, step_id: str) -> None:
        """About to run code of the user's that was never recorded."""
        ...

    def record(self, step: StepRow) -> dt.datetime:
        """Write a step; when it was recorded. Raises ``Stopped`` when the lease is lost."""
        ...

    def recording(self, write: Callable[[Recording], None]) -> AbstractContextManager[None]:
        """A fenced transaction on the body's own connection; ``write`` is called at its end to record the step.

        Raises :class:`CommitLost` when the commit did not happen.
        """
        ...

    def open(
        self,
        waits: Sequence[NewWait],
        enough: Enough,
        calls: Sequence[tuple[NewJobs, str, str | None]] = (),
        child: NewExecution | None = None,
    ) -> tuple[bool, list[Standing]]:
        """Open waits and park, unless they are resolved already: (parked, standings)."""
        ...

    def read_output(self, step_id: str) -> str | None:
        """A large output, as JSON text."""
        ...

    def pause_briefly(self, seconds: float) -> None:
        """Wait in the thread, at most about a second. Raises ``Stopped`` when the process shuts down."""
        ...

    def bounded(self, seconds: float | None, work: Callable[[], object]) -> object:
        """What ``work`` returns; raises JobTimeout in it when that takes longer."""
        ...

    @property
    def should_stop(self) -> bool:
        """Whether the process shuts down or the lease is lost."""
        ...
