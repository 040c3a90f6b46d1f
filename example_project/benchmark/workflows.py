"""Workflows that do nothing but be recorded."""

from typing import Any

from example_project.benchmark.jobs import QUEUE
from pgjobs import workflow


def step(number: int) -> int:
    return number


@workflow(queue=QUEUE)
def counting(ctx: Any, steps: int) -> int:
    """As many recorded steps as asked for, one after another."""
    return sum(ctx.step(step, number) for number in range(steps))


@workflow(queue=QUEUE)
def remembering(ctx: Any, steps: int) -> int:
    """The same, and a short sleep at the end: the turn after it replays them all."""
    total = sum(ctx.step(step, number) for number in range(steps))
    ctx.sleep("a moment", 0.2)
    return total
