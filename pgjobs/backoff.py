"""How long to wait before the next try: exponential, capped, with jitter. Pure functions."""

from __future__ import annotations

import random
from dataclasses import dataclass

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
        if not 0 <= self.base <= MAX_DELAY_SECONDS:
            raise InvalidOption("Backoff(base)", self.base, "give seconds from 0 to a year.")
        if not 0 <= self.cap <= MAX_DELAY_SECONDS:
            raise InvalidOption("Backoff(cap)", self.cap, "give seconds from 0 to a year.")
        if not 1 <= self.factor <= 100:
            raise InvalidOption("Backoff(factor)", self.factor, "give a number from 1 to 100.")
        if not 0 <= self.jitter <= 1:
            raise InvalidOption("Backoff(jitter)", self.jitter, "give a fraction from 0 to 1.")
        if self.attempts is not None and self.attempts < 1:
            raise InvalidOption("Backoff(attempts)", self.attempts, "give 1 or more.")

    def delay(self, attempt: int, rng: random.Random | None = None) -> float:
        """Seconds to wait after ``attempt`` (1 for the first) has failed."""
        exponent = min(max(attempt, 1) - 1, 64)  # 2.0 ** 2000 overflows; the cap is reached long before 64
        plain = min(self.cap, self.base * self.factor**exponent)
        return plain * (rng or random).uniform(1 - self.jitter, 1 + self.jitter)
