"""Waiting for a condition instead of for time to pass."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02


def wait_until(
    condition: Callable[[], T], timeout: float = 20.0, message: str | Callable[[], str] = "the condition"
) -> T:
    """Returns the first true value of `condition`. Raises AssertionError after `timeout` seconds.

    `message` says what was waited for; give a function when its text is only known afterwards.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            text = message() if callable(message) else message
            raise AssertionError(f"Waited {timeout:g} s in vain for {text}; the last value was {value!r}.")
        time.sleep(POLL_SECONDS)
