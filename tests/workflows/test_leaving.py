"""Which atomic blocks a replay can leave out, read off their bytecode; refused are those that it cannot."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pgjobs.models import StepOutput
from pgjobs.workflows.skipping import misuse
from tests.jobsapp.models import Effect
from tests.workflows import leaving
from tests.workflows.blocks import deed
from tests.workflows.carrier import Carrier


def found(function: Callable[[Any], Any]) -> list[str]:
    """What is said of each block that ``function`` enters."""
    told: list[str] = []

    class Block:
        output: Any = None

        def __enter__(self) -> "Block":
            told.append((misuse(sys._getframe(1)) or ("",))[0])
            return self

        def __exit__(self, *error: object) -> bool:
            return error[0] is KeyError

    function(Block)
    return told


def name(function: Any) -> str:
    return str(function.__name__)


@pytest.mark.parametrize("function", leaving.STAYS, ids=name)
def test_blocks_that_end_where_they_end(function: Callable[[Any], Any]) -> None:
    told = found(function)
    assert told and not any(told)


@pytest.mark.parametrize("function", leaving.LEAVES, ids=name)
def test_blocks_that_are_left_early(function: Callable[[Any], Any]) -> None:
    assert "return, break or continue" in found(function)[0]


@pytest.mark.parametrize("function", leaving.ELSEWHERE, ids=name)
def test_blocks_that_are_not_in_the_body(function: Callable[[Any], Any]) -> None:
    [told] = found(function)
    assert "generator" in told or "with statement of its own" in told


def test_a_block_that_is_left_early_is_refused_before_it_runs(carrier: Carrier) -> None:
    def body(ctx: Any) -> Any:
        with ctx.atomic("a") as step:
            deed("a")
            return step

    execution = carrier.run(carrier.flow(body).start())
    assert execution.status == "failed" and "DurableCallRefused: ctx.atomic('a')" in execution.last_error
    assert "Set step.output" in execution.last_error
    assert not Effect.objects.exists() and not StepOutput.objects.exists()


def test_other_arguments_of_an_atomic_function_diverge(carrier: Carrier) -> None:
    def body(ctx: Any) -> None:
        ctx.atomic("a", deed, keys[0])
        ctx.sleep("nap", 5)

    keys = ["a"]
    execution = carrier.run(carrier.flow(body).start())
    keys[0] = "b"

    assert carrier.wake(execution).status == "paused" and "its arguments are others" in execution.pause_reason
