"""The chore of carrying bulk operations: one batch between two claims, at the pace of each operation."""

from __future__ import annotations

import logging
import math
import random

from pgjobs.connections import OUTAGE, sqlstate
from pgjobs.worker import clock

logger = logging.getLogger("pgjobs.bulk")

_LOOK_EVERY = (
    10.0  # seconds, in a process that is never idle; whoever starts an operation does the first batch
)
_AGAIN = 1.0  # until an operation is looked at again that somebody else has in hand
_CANCELLED = "57014"  # a batch that is longer than the role's statement_timeout will be so again
_AT_A_TIME = 20
_BREATH = 0.02  # between two batches, so that claims have their turn


class BulkCarrier:
    """Any number of workers may carry one operation: each batch locks it, and the others pass by."""

    def __init__(self, name: str, *, using: str) -> None:
        self._name = name
        self._using = using
        self._due = clock.now() + _LOOK_EVERY * random.uniform(0.2, 1.0)
        self._carrying = False
        self._next: dict[int, float] = {}
        """Of each operation that runs, when its next batch may come."""
        self._looked_at = -math.inf

    @property
    def age(self) -> float:
        """Seconds since it last knew what is to be carried; infinity when it never did."""
        return clock.now() - self._looked_at

    @property
    def due(self) -> float:
        """When to look next, on the worker's clock."""
        return self._due

    def looked(self, *, running: bool) -> None:
        """Somebody has just seen whether an operation is to be carried."""
        self._looked_at = clock.now()
        if not running:
            self._due = clock.now() + _LOOK_EVERY
        elif not self._carrying:
            self._due = clock.now()

    def run_if_due(self) -> None:
        """A batch of each operation that runs and may go on, of a few at a time: those that have waited longest."""
        now = clock.now()
        if now < self._due:
            return
        from pgjobs.bulk.runner import running  # verbs and filters: none of it before there is one

        self._due = now + _AGAIN  # whatever comes of it: claims have their turn in between
        self._next = {pk: self._next.get(pk, 0.0) for pk in running(using=self._using)}
        self._looked_at = clock.now()
        self._carrying = bool(self._next)
        waiting = [pk for pk, at in self._next.items() if at <= now]
        for pk in sorted(waiting, key=self._next.__getitem__)[:_AT_A_TIME]:
            # A slow pace is no reason to overlook that it was changed, or what is started meanwhile.
            self._next[pk] = clock.now() + min(self._batch(pk), _LOOK_EVERY)
        soonest = min(self._next.values(), default=math.inf)
        self._due = min(
            max(soonest, clock.now() + _BREATH), clock.now() + _LOOK_EVERY * random.uniform(0.8, 1.2)
        )

    def _batch(self, pk: int) -> float:
        """Seconds until the next one of this operation. What its own fault stops does not stop the worker."""
        from pgjobs.bulk.runner import hold, run_batch

        try:
            batch = run_batch(pk, by=self._name, using=self._using)
        except Exception as error:
            if isinstance(error, OUTAGE) and sqlstate(error) != _CANCELLED:
                raise
            logger.exception("bulk=%s cannot be carried on and is paused", pk)
            hold(pk, error, using=self._using)
            return _AGAIN
        return _AGAIN if batch is None else max(batch.wait, _BREATH)
