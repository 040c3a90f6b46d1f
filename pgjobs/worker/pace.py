"""How far ahead of the free slots to claim: only as far as short jobs are eaten up in a moment."""

from __future__ import annotations

from pgjobs.conf import get_settings

_SHORT = 0.01  # seconds; a job that runs longer is better left for whoever has a free slot
_HORIZON = (
    0.02  # seconds of work to hold ready: longer than a claim's round trip, shorter than anybody notices
)
_WEIGHT = 0.05  # of the newest job in the moving average
_QUICKEST = 1e-4


class Pace:
    """A moving average of how long handlers run. Written by slots' threads, read by the claim loop."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean = 1.0  # unknown: nothing is claimed ahead until short jobs have been seen

    def note(self, seconds: float) -> None:
        """A handler has run for so long. Lost updates between threads do not matter."""
        self._mean += _WEIGHT * (min(seconds, 1.0) - self._mean)

    def forget(self) -> None:
        """Rows have waited in vain: claim nothing ahead until short jobs have been seen again."""
        self._mean = 1.0

    def ahead(self) -> int:
        """Jobs to hold beyond those that run."""
        if self._mean > _SHORT:
            return 0
        wanted = self._slots * _HORIZON / max(self._mean, _QUICKEST)
        return min(int(wanted), get_settings().max_prefetch)
