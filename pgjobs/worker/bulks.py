"""The chore of carrying bulk operations: one batch between two claims, at the pace of each operation."""

from __future__ import annotations

import logging
import math
import random

from pgjobs.bulk.runner import hold, run_batch, running
from pgjobs.connections import OUTAGE, sqlstate
from pgjobs.worker import clock

logger = logging.getLogger("pgjobs.bulk")

_LOOK_EVERY = (
    10.0  # seconds, in a process that is never idle; whoever starts an operation does the first batch
)
_AGAIN = 1.0  # until an operation is looked at again that somebody else has in hand
_CANCELLED = "57014"  # a batch that is longer than the role's statement_timeout will be so again
_BREATH = 0.02  # between two batches, so that claims have their turn


class BulkCarrier:
    """Any number of workers may carry one operation: each batch locks it, and the others pass by."""

    def __init__(self, name: str, *, using: str) -> None:
        self._name = name
        self._using = using
        self._due = clock.now() + _LOOK_EVERY * random.uniform(0.2, 1.0)
        self._carrying = False
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
        """A batch of each operation that runs."""
        if clock.now() < self._due:
            return
        self._due = clock.now() + _AGAIN  # whatever comes of it: claims have their turn in between
        waits = [self._batch(pk) for pk in running(using=self._using)]
        self._looked_at = clock.now()
        self._carrying = bool(waits)
        # A slow pace is no reason to overlook what is started meanwhile.
        self._due = clock.now() + min([*waits, _LOOK_EVERY * random.uniform(0.8, 1.2)])

    def _batch(self, pk: int) -> float:
        """Seconds until the next one of this operation. What its own fault stops does not stop the worker."""
        try:
            batch = run_batch(pk, by=self._name, using=self._using)
        except Exception as error:
            if isinstance(error, OUTAGE) and sqlstate(error) != _CANCELLED:
                raise
            logger.exception("bulk=%s cannot be carried on and is paused", pk)
            hold(pk, error, using=self._using)
            return _AGAIN
        return _AGAIN if batch is None else max(batch.wait, _BREATH)
