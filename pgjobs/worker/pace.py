"""How far ahead of the free slots to claim: as far as short jobs are eaten up in a moment, and for longer ones only
a moment before a slot is known to be free."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pgjobs.conf import get_settings
from pgjobs.worker import clock
from pgjobs.worker.holdings import Holding

_SHORT = 0.01  # seconds; a job that runs longer is better left for whoever has a free slot
_HORIZON = (
    0.02  # seconds of work to hold ready: longer than a claim's round trip, shorter than anybody notices
)
_WEIGHT = 0.05  # of the newest job in the moving average
_QUICKEST = 1e-4

# Seconds before a foreseen end that the next job is claimed: many processes may do so at one moment.
_BEFORE = 0.03
_ALIKE = 0.015  # seconds by which the last jobs of a type may differ for the next one's end to be foreseen
_LAST = 2  # times of a type that are remembered


class Pace:
    """How long handlers run: all of them on average, and the longer ones by type.

    Written by slots' threads, read by the claim loop. Lost updates between threads do not matter.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean = 1.0  # unknown: nothing is claimed ahead until short jobs have been seen
        self._lasted: dict[str, tuple[float, ...]] = {}
        """The last times of each type that is not short."""

    def note(self, job_type: str, seconds: float) -> None:
        """A handler has run for so long."""
        self._mean += _WEIGHT * (min(seconds, 1.0) - self._mean)
        if seconds > _SHORT or job_type in self._lasted:
            self._lasted[job_type] = (*self._lasted.get(job_type, ())[1 - _LAST :], seconds)

    def forget(self) -> None:
        """Rows have waited in vain: claim nothing ahead until jobs have shown again how long they take."""
        self._mean = 1.0
        self._lasted = {}

    def ahead(self) -> int:
        """Jobs to hold beyond those that run."""
        if self._mean > _SHORT:
            return 0
        wanted = self._slots * _HORIZON / max(self._mean, _QUICKEST)
        return min(int(wanted), get_settings().max_prefetch)

    def foresees(self) -> bool:
        """Whether the end of any job may be foreseen."""
        return bool(self._lasted)

    def ending(self, running: Iterable[Holding]) -> tuple[int, float]:
        """How many of these will end in a moment, and in how many seconds the next one comes so near to its end.

        A job whose type took the same time twice is taken to do so again; one that is late is not foreseen.
        """
        soon, next_one = 0, math.inf
        now = clock.now()
        for holding in running:
            expected = self._expected(holding)
            if expected is None:
                continue
            left = holding.started_at + expected - now
            if left > _BEFORE:
                next_one = min(next_one, left - _BEFORE)
            elif left > -_ALIKE:
                soon += 1
        return min(soon, get_settings().max_prefetch), next_one

    def _expected(self, holding: Holding) -> float | None:
        lasted = self._lasted.get(getattr(holding.claimed, "job_type", ""), ())
        if len(lasted) < _LAST or max(lasted) - min(lasted) > _ALIKE:
            return None
        return min(lasted)
