"""Handlers that do next to nothing, so that what is measured is the queue."""

import time

from example_project.benchmark.peers import program
from pgjobs import job

QUEUE = program.QUEUE


@job(queue=QUEUE)
def noop() -> None:
    """No work at all."""


@job(queue=QUEUE)
def arrival() -> int:
    """When the handler began, in nanoseconds of this host's clock."""
    return time.time_ns()


@job(queue=QUEUE)
def noted(number: int) -> None:
    """The same, noted in the file that the environment names, as every queue can."""
    program.arrived(number)


@job(queue=QUEUE)
def pause(milliseconds: float) -> None:
    """Work that waits, as most real work does."""
    time.sleep(milliseconds / 1000)
