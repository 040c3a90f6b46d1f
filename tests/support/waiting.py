"""Waiting for a condition instead of for time to pass."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.05


def wait_until(
    condition: Callable[[], T], timeout: float = 20.0, message: str | Callable[[], str] = "the condition"
) -> T:
    """Returns the first true value of `condition`. Raises AssertionError after `timeout` seconds.

    `message` says what was waited for; give a function when its text is only known afterwards.
    """
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE_SECONDS
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            text = message() if callable(message) else message
            raise AssertionError(f"Waited {timeout:g} s in vain for {text}; the last value was {value!r}.")
        time.sleep(pause)
        pause = min(1.2 * pause, LONGEST_PAUSE_SECONDS)  # looking costs the processors that are waited for
