"""Delays grow, stay under the cap, and differ."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgjobs import Backoff
from pgjobs.backoff import MAX_DELAY_SECONDS
from pgjobs.exceptions import InvalidOption


def test_doubles_from_the_base() -> None:
    backoff = Backoff(base=2, cap=600, jitter=0)

    assert [backoff.delay(n) for n in range(1, 11)] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600]


@pytest.mark.parametrize("attempt", [64, 65, 1_000, 10**9])
def test_late_attempts_wait_for_the_cap(attempt: int) -> None:
    assert Backoff(jitter=0).delay(attempt) == 600
    assert Backoff(factor=100, cap=MAX_DELAY_SECONDS, jitter=0).delay(attempt) == MAX_DELAY_SECONDS


@pytest.mark.parametrize("attempt", [0, -5])
def test_an_attempt_before_the_first_counts_as_the_first(attempt: int) -> None:
    assert Backoff(base=3, jitter=0).delay(attempt) == 3


def test_a_factor_of_one_is_constant() -> None:
    assert Backoff(base=5, factor=1, jitter=0).delay(1_000) == 5


def test_a_base_of_zero_means_at_once() -> None:
    assert Backoff(base=0).delay(1_000) == 0


@given(st.integers(1, 2_000), st.floats(0, 1), st.integers())
def test_jitter_is_a_fraction_of_the_delay_in_either_direction(
    attempt: int, jitter: float, seed: int
) -> None:
    plain = Backoff(base=2, cap=600, jitter=0).delay(attempt)

    moved = Backoff(base=2, cap=600, jitter=jitter).delay(attempt, random.Random(seed))

    assert plain * (1 - jitter) <= moved <= plain * (1 + jitter) * (1 + 1e-12)


def test_jobs_that_failed_together_come_back_apart() -> None:
    rng = random.Random(1)
    delays = {Backoff(base=100).delay(1, rng) for _ in range(50)}

    assert len(delays) == 50 and min(delays) < 95 and max(delays) > 105


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("base", [-1, MAX_DELAY_SECONDS + 1, float("nan"), float("inf"), "2", None]),
        ("cap", [-1, MAX_DELAY_SECONDS + 1, float("nan"), "600"]),
        ("factor", [0.5, 101, float("nan"), "2"]),
        ("jitter", [-0.1, 1.1, float("nan"), "0"]),
        ("attempts", [0, -1, "3"]),
    ],
)
def test_nonsense_is_refused_with_the_value_and_the_rule(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidOption) as caught:
            Backoff(**{option: value})
        assert f"Backoff({option})={value!r}" in str(caught.value) and "give " in str(caught.value)
