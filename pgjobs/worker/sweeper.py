"""The chores beside reaping: wake workflows when they are due, carry bulk operations, move old history away."""

from __future__ import annotations

import math
import threading

from pgjobs.worker import clock
from pgjobs.worker.bulks import BulkCarrier
from pgjobs.worker.pruner import Pruner
from pgjobs.workflows.registry import workflows
from pgjobs.workflows.retention import retire
from pgjobs.workflows.sweep import REPAIR_SECONDS, seconds_until_due, sweep_due

_RETIRE_EVERY = 60.0
_AGAIN = 1.0


class Sweeper:
    """Runs when the next wait is due; looks again every ``longest`` seconds for what other processes parked."""

    def __init__(self, longest: float, *, name: str, using: str) -> None:
        self._using = using
        self._longest = longest
        self._lock = threading.Lock()
        self._due = clock.now() if workflows.names() else math.inf
        self._alarm = math.inf
        """When the first wait is due that this process has parked."""
        self._swept_at = -math.inf
        self._looked_at = -math.inf
        self._retire_due = clock.now() + _RETIRE_EVERY
        self._pruner = Pruner(using=using)
        self._bulks = BulkCarrier(name, using=using)

    def ages(self) -> dict[str, float]:
        """Seconds since each chore was last done here, by its name; infinity when it never was."""
        swept = clock.now() - max(self._swept_at, self._looked_at)
        return {"sweeper": swept, "pruner": self._pruner.age, "bulk": self._bulks.age}

    def due_in(self, seconds: float) -> None:
        """A wait of this process is due then. Safe from any thread."""
        with self._lock:
            self._alarm = min(self._alarm, clock.now() + seconds)

    def seconds_until_due(self) -> float:
        """How long the next look may wait."""
        return max(min(self._due, self._alarm, self._pruner.due, self._bulks.due) - clock.now(), 0.0)

    def looked(self, wait_seconds: float, *, bulk: bool) -> None:
        """Somebody has just seen that the next wait is due in ``wait_seconds``: the next sweep has time until then.

        ``bulk``: whether a bulk operation is to be carried.
        What is long overdue is held by somebody or cannot be moved, and is tried once a second. A sweep also
        repairs, so one is due now and then whatever was seen.
        """
        self._bulks.looked(running=bulk)
        if self._due == math.inf:
            return  # this process carries no workflows
        now = self._looked_at = clock.now()
        due = max(now, self._swept_at + _AGAIN) if wait_seconds < -_AGAIN else now + max(wait_seconds, 0.0)
        self._due = min(due, now + self._longest, self._swept_at + REPAIR_SECONDS)

    def run_if_due(self) -> None:
        """Wake what is due, in bounded batches, and set the time of the next look."""
        self._pruner.run_if_due()
        self._bulks.run_if_due()
        if clock.now() < min(self._due, self._alarm):
            return
        with self._lock:
            self._alarm = math.inf
        self._due = clock.now() + self._longest
        self._swept_at = clock.now()
        if sweep_due(using=self._using):
            self._due = clock.now()  # there may be more: the next turn goes on after others have had theirs
        elif (seconds := seconds_until_due(using=self._using)) is not None:
            self._due = min(self._due, clock.now() + max(seconds, 0.001))
        if clock.now() >= self._retire_due:
            self._retire_due = clock.now() + _RETIRE_EVERY
            if retire(using=self._using):
                self._retire_due = clock.now()
