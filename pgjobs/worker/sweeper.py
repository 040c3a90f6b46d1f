"""The chores beside reaping: wake workflows when they are due, carry bulk operations, move old history away."""

from __future__ import annotations

import math
import threading

from pgjobs.worker import clock
from pgjobs.worker.bulks import BulkCarrier
from pgjobs.worker.pruner import Pruner
from pgjobs.workflows.registry import workflows
from pgjobs.workflows.retention import retire
from pgjobs.workflows.sweep import seconds_until_due, sweep_due

_RETIRE_EVERY = 60.0


class Sweeper:
    """Runs when the next wait is due; looks again every ``longest`` seconds for what other processes parked."""

    def __init__(self, longest: float, *, name: str, using: str) -> None:
        self._using = using
        self._longest = longest
        self._lock = threading.Lock()
        self._due = clock.now() if workflows.names() else math.inf
        self._retire_due = clock.now() + _RETIRE_EVERY
        self._pruner = Pruner(using=using)
        self._bulks = BulkCarrier(name, using=using)

    def due_in(self, seconds: float) -> None:
        """A wait of this process is due then. Safe from any thread."""
        with self._lock:
            self._due = min(self._due, clock.now() + seconds)

    def seconds_until_due(self) -> float:
        """How long the next look may wait."""
        return max(min(self._due, self._pruner.due, self._bulks.due) - clock.now(), 0.0)

    def run_if_due(self) -> None:
        """Wake what is due, in bounded batches, and set the time of the next look."""
        self._pruner.run_if_due()
        self._bulks.run_if_due()
        if clock.now() < self._due:
            return
        with self._lock:
            self._due = clock.now() + self._longest
        if sweep_due(using=self._using):
            self.due_in(0.0)  # there may be more: the next turn goes on after others have had theirs
        elif (seconds := seconds_until_due(using=self._using)) is not None:
            self.due_in(max(seconds, 0.001))
        if clock.now() >= self._retire_due:
            self._retire_due = clock.now() + _RETIRE_EVERY
            if retire(using=self._using):
                self._retire_due = clock.now()
