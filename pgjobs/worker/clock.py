"""A clock for waiting inside one process. Instants that other processes must agree on are the database's."""

from __future__ import annotations

import time

# BOOTTIME goes on while the machine sleeps, so a lease does not look fresh after a laptop's lid was closed.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds, never backwards."""
    return time.clock_gettime(_CLOCK)
