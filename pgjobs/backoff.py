"""How long to wait before the next try: exponential, capped, with jitter. Pure functions."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from pgjobs.exceptions import InvalidOption

MAX_DELAY_SECONDS = 366 * 86_400.0
"""No automatic delay is longer than this (a year)."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """``base * factor ** (attempt - 1)`` seconds, never above ``cap``, moved by ±``jitter`` (a fraction).

    Jitter keeps jobs that failed together from coming back together. ``attempts`` is for steps of a
    workflow; a job's budget is its ``max_attempts``.
    """

    base: float = 2.0
    cap: float = 600.0
    factor: float = 2.0
    jitter: float = 0.1
    attempts: int | None = None

    def __post_init__(self) -> None:
        _check("base", self.base, 0, MAX_DELAY_SECONDS, "give seconds from 0 to a year.")
        _check("cap", self.cap, 0, MAX_DELAY_SECONDS, "give seconds from 0 to a year.")
        _check("factor", self.factor, 1, 100, "give a number from 1 to 100.")
        _check("jitter", self.jitter, 0, 1, "give a fraction from 0 to 1.")
        if self.attempts is not None:
            _check("attempts", self.attempts, 1, 10_000, "give a whole number from 1 to 10,000.", whole=True)

    def delay(self, attempt: int, rng: random.Random | None = None) -> float:
        """Seconds to wait after ``attempt`` (1 for the first) has failed."""
        exponent = min(max(attempt, 1) - 1, 64)  # 2.0 ** 2000 overflows; the cap is reached long before 64
        plain = min(self.cap, self.base * self.factor**exponent)
        return plain * (rng or random).uniform(1 - self.jitter, 1 + self.jitter)


def _check(name: str, value: Any, least: float, most: float, rule: str, *, whole: bool = False) -> None:
    is_number = isinstance(value, int) if whole else isinstance(value, int | float)
    if isinstance(value, bool) or not is_number or not least <= value <= most:
        raise InvalidOption(f"Backoff({name})", value, rule)
