"""Who is told, in the settling transaction, that an awaited job has ended. The queue does not know who listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Subscriber = Callable[[Sequence[int], str], None]
"""Takes ids of jobs that have just become terminal, and the database alias; runs inside that transaction."""

_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber) -> None:
    """Have ``subscriber`` called in every transaction that ends awaited jobs."""
    if subscriber not in _subscribers:
        _subscribers.append(subscriber)


def announce(ids: Sequence[int], using: str) -> None:
    """Tell the subscribers. Must be called inside the transaction that moved the rows."""
    if ids:
        for subscriber in _subscribers:
            subscriber(ids, using)
