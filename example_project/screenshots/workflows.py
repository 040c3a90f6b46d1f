"""An order as a workflow, which waits for its charge."""

from typing import Any

from example_project.screenshots.jobs import charge
from pgjobs import workflow


def reserve(order: int) -> dict[str, Any]:
    """Puts the goods aside."""
    return {"order": order, "shelf": "B-12", "parcels": 2}


def label(order: int, reserved: dict[str, Any]) -> list[str]:
    """One label for each parcel."""
    return [f"{order}-{n}" for n in range(reserved["parcels"])]


@workflow(name="warehouse.fulfil", version=3)
def fulfil(ctx: Any, order: int, amount: str) -> dict[str, Any]:
    """Reserve, print labels, charge."""
    reserved = ctx.step(reserve, order)
    labels = ctx.step(label, order, reserved)
    asked = charge.s(order=order, amount=amount, customer={"id": order % 9000}, card_token="current")
    charged = ctx.job(asked)
    return {"labels": labels, **charged}
