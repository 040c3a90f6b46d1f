"""The frame of a program that runs in an entrant's environment: its verbs, its clock, its arrivals.

Standard library only: nothing of this project is installed there.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

DATABASE = "PEER_DATABASE"
ARRIVALS = "PEER_ARRIVALS"
VARIANT = "PEER_VARIANT"
CONCURRENCY = "PEER_CONCURRENCY"
QUEUE = "benchmark"
REST_SECONDS = (0.05, 0.15)
LOOK_SECONDS = 0.005
ARRIVAL_SECONDS = 30.0


def database() -> str:
    """URL of the entrant's own database, as libpq reads it."""
    return os.environ[DATABASE]


def variant() -> str:
    return os.environ.get(VARIANT, "")


def concurrency() -> int:
    return int(os.environ[CONCURRENCY])


def arrived(number: int) -> None:
    """Called by a handler: note when it began. One small write to a file opened for appending is whole."""
    if path := os.environ.get(ARRIVALS):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, f"{number} {time.time_ns()}\n".encode())
        os.close(file)


def paced(count: int) -> Iterator[int]:
    """Numbers of jobs to enqueue, each when the one before has begun and the worker has rested.

    The time at which a number is handed out is noted beside the arrivals: the enqueue call is in the figure.
    Raises TimeoutError when a job does not begin.
    """
    path = Path(os.environ[ARRIVALS])
    with path.with_suffix(".sent").open("a") as sent:
        for number in range(count):
            time.sleep(random.uniform(*REST_SECONDS))
            sent.write(f"{number} {time.time_ns()}\n")
            sent.flush()
            yield number
            deadline = time.monotonic() + ARRIVAL_SECONDS
            while not path.exists() or f"{number} " not in _last_line(path):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"Job {number} did not begin within {ARRIVAL_SECONDS:g} s.")
                time.sleep(LOOK_SECONDS)


def _last_line(path: Path) -> str:
    return path.read_text().rstrip().rpartition("\n")[2]


def become(command: str, *arguments: str) -> None:
    """Go on as a command of the entrant's environment, the way its documentation starts a worker."""
    path = Path(sys.executable).parent / command
    os.execv(path, [str(path), *arguments])


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main(
    *,
    prepare: Callable[[], None],
    work: Callable[[], None],
    bulk: Callable[[int], float] | None = None,
    single: Callable[[Iterable[int]], float] | None = None,
    flows: Callable[[int, int], float] | None = None,
) -> None:
    """Do the verb of the command line; what it measured, in seconds, goes to standard output.

    ``single`` enqueues one job a number, ``bulk`` so many in the way meant for many, ``flows`` starts so many
    executions of so many steps. ``work`` does not return.
    """
    verb, *numbers = sys.argv[1:]
    counts = [int(number) for number in numbers]
    if verb == "prepare":
        seconds: float | None = prepare()
    elif verb == "work":
        seconds = work()
    elif verb == "bulk" and bulk is not None:
        seconds = bulk(*counts)
    elif verb == "single" and single is not None:
        seconds = single(range(*counts))
    elif verb == "paced" and single is not None:
        seconds = single(paced(*counts))
    elif verb == "flows" and flows is not None:
        seconds = flows(*counts)
    else:
        sys.exit(f"{sys.argv[0]} has no verb {verb!r}")
    sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")
