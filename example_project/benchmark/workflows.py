"""A workflow that does nothing but be recorded."""

from typing import Any

from example_project.benchmark.jobs import QUEUE
from pgjobs import workflow


def step(number: int) -> int:
    return number


@workflow(queue=QUEUE)
def counting(ctx: Any, steps: int) -> int:
    """As many recorded steps as asked for, one after another."""
    return sum(ctx.step(step, number) for number in range(steps))
