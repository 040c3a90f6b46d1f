"""The lab's work for the product: the same as the plain workers do, to wait."""

import time

from pgjobs import job

QUEUE = "lab"


@job(queue=QUEUE)
def sleep_ms(milliseconds: float) -> None:
    """Stands for a call to something slow."""
    time.sleep(milliseconds / 1000)


@job(queue=QUEUE)
def invoice(number: str, seconds: float) -> dict[str, str]:
    """Work whose effect must land once: its result is kept under the key it was enqueued with."""
    time.sleep(seconds)
    return {"invoice": number}
