"""Waiting for a condition, with a limit and with the progress bar alive."""

import time
from collections.abc import Callable

from example_project.demo.crew import DemoError

APPLICATION = "pgjobs_lab"
"""Application name of every worker under measurement, so that pg_stat_activity tells them from others."""


def wait(
    condition: Callable[[], bool], what: str, seconds: float, *, tick: Callable[[], None], pause: float = 0.02
) -> None:
    """Until it holds, looking every ``pause`` seconds. Raises DemoError when it takes longer than ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DemoError(f"Waited {seconds:.0f} s in vain for {what}.")
        tick()
        time.sleep(pause)
