"""A workflow that sleeps, and what a release may make of it while it does."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pgjobs.models import Execution
from tests.workflows.carrier import Carrier

Body = Callable[..., Any]


def charge(amount: int = 1) -> int:
    return amount + 1


def ship(order: int) -> str:
    return f"parcel {order}"


def original(ctx: Any, order: int) -> Any:
    paid = ctx.step(charge, order)
    ctx.sleep("cool down", timedelta(days=30))
    return ctx.step(ship, paid)


def sleeper(carrier: Carrier, body: Body = original, **options: Any) -> Execution:
    """An execution of ``body`` that has come to its sleep."""
    slept = carrier.run(carrier.flow(body, **options).start(order=1))
    assert slept.status == "waiting"
    return slept


def renamed(ctx: Any, order: int) -> Any:
    ctx.step(charge, order, name="debit")
    ctx.sleep("cool down", timedelta(days=30))


def added(ctx: Any, order: int) -> Any:
    ctx.step(ship, order, name="announce")
    return original(ctx, order)


def removed(ctx: Any, order: int) -> Any:
    ctx.sleep("cool down", timedelta(days=30))
    return ctx.step(ship, order)


def reordered(ctx: Any, order: int) -> Any:
    ctx.sleep("cool down", timedelta(days=30))
    ctx.step(charge, order)


def other_arguments(ctx: Any, order: int) -> Any:
    ctx.step(charge, order + 1)
    ctx.sleep("cool down", timedelta(days=30))


def other_kind(ctx: Any, order: int) -> Any:
    ctx.atomic("charge", charge, order)
    ctx.sleep("cool down", timedelta(days=30))


def cut_short(ctx: Any, order: int) -> Any:
    return ctx.step(charge, order)
