"""Handlers of a shop as it might be: mail that goes out, a card processor in trouble, a slow import."""

import time
from typing import Any

from pgjobs import Backoff, job


class ChargeDeclined(Exception):
    """The card processor said no."""


class CardProcessor:
    """Stands in for the client of a payment service."""

    def __init__(self, api_key: str) -> None:
        self._authorised = api_key == "current"

    def charge(self, order: int, amount: str) -> str:
        """Takes the money. Raises ChargeDeclined while the key is the one that was rotated away."""
        if not self._authorised:
            raise ChargeDeclined(
                f"order {order}: amount {amount} refused, the key sk_{order:08d} was revoked"
            )
        return f"ch_{order}"


@job(name="billing.charge", queue="billing", max_attempts=2, retry=Backoff(base=0.2, cap=0.2))
def charge(order: int, amount: str, customer: dict[str, Any], card_token: str) -> dict[str, str]:
    """Charges an order."""
    return {"charge": CardProcessor(api_key=card_token).charge(order, amount)}


@job(name="mail.send", queue="mail")
def send(to: str, template: str) -> dict[str, str]:
    """Sends one mail."""
    time.sleep(0.05)
    return {"to": to, "template": template}


@job(name="crm.sync", queue="crm", max_attempts=2, retry=Backoff(base=0.2, cap=0.2))
def sync(account: int, tenant: str) -> None:
    """Reads an account of a system that is slow today."""
    raise TimeoutError(f"crm-{account % 3}.example.com did not answer within 30 s")


@job(name="reports.monthly", queue="reports")
def monthly(month: str, region: str) -> None:
    """Never runs in the pictures: its queue is paused."""


@job(name="imports.load", queue="imports", takes_context=True, timeout=900)
def load(ctx: Any, file: str, rows: int, done: int = 0, seconds: float = 300) -> None:
    """Loads rows for so many seconds, and tells how far it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not ctx.should_stop:
        done = min(done + rows // 400, rows)
        ctx.progress(done, rows, f"{file}, line {done:,}")
        time.sleep(1)
