"""Handlers that do next to nothing, so that what is measured is the queue."""

import time

from pgjobs import job

QUEUE = "benchmark"


@job(queue=QUEUE)
def noop() -> None:
    """No work at all."""


@job(queue=QUEUE)
def arrival() -> int:
    """When the handler began, in nanoseconds of this host's clock."""
    return time.time_ns()
