"""The chore of retention in a worker: one short step between two claims, and a long pause once nothing is old."""

from __future__ import annotations

import logging
import math
import random

from pgjobs.conf import get_settings
from pgjobs.connections import OUTAGE, sqlstate
from pgjobs.queue import audit
from pgjobs.queue.partitions import drop_months
from pgjobs.queue.retention import Policy, Walk
from pgjobs.worker import clock

logger = logging.getLogger("pgjobs.retention")

_SHORTEST, _LONGEST = 2.0, 60.0  # seconds between two passes
_DROP_EVERY = 3600.0
_AUDIT_FIRST, _AUDIT_EVERY = 60.0, 3600.0


class Pruner:
    """Walks the job table by the settings' rules, and the audit's. Any number of workers may run one."""

    def __init__(self, *, using: str) -> None:
        self._using = using
        self._policy = Policy.from_settings()
        self._walk = Walk(using=using)
        self._pause = _SHORTEST
        self._stepped_at = -math.inf
        self._moved = 0
        soon = clock.now() + random.uniform(0, _SHORTEST)
        self._walk_due = math.inf if self._policy.shortest is None else soon
        self._drop_due = math.inf if self._policy.archive_seconds is None else soon
        self._audit_due = (
            math.inf
            if get_settings().audit_days is None
            else clock.now() + _AUDIT_FIRST * random.uniform(1, 2)
        )

    @property
    def age(self) -> float:
        """Seconds since the last step of the walk; infinity when it took none."""
        return clock.now() - self._stepped_at

    @property
    def due(self) -> float:
        """When there is something to do, on the worker's clock; infinity when everything is kept."""
        return min(self._walk_due, self._drop_due, self._audit_due)

    def run_if_due(self) -> None:
        """One step of the walk; and once an hour, whole months of the archive and old rows of the audit."""
        # Each is put off before it is tried: one that the database refuses must not come before every claim.
        if clock.now() >= self._walk_due:
            self._walk_due = clock.now() + _SHORTEST
            self._step()
        if clock.now() >= self._drop_due:
            self._drop_due = clock.now() + _DROP_EVERY * random.uniform(0.9, 1.1)
            self._drop()
        if clock.now() >= self._audit_due:
            self._audit_due = clock.now() + _AUDIT_FIRST
            more = audit.prune(using=self._using) == audit.PRUNE_BATCH
            self._audit_due = clock.now() + (0 if more else _AUDIT_EVERY * random.uniform(0.9, 1.1))

    def _step(self) -> None:
        moved, ended = self._walk.step(self._policy)
        self._stepped_at = clock.now()
        self._moved += moved
        if not ended:
            self._walk_due = clock.now()  # the next turn goes on after others have had theirs
            return
        # A tenth of the time for which jobs are kept, so that the table stays near its size; slower when idle.
        tenth = min(max((self._policy.shortest or 0) / 10, _SHORTEST), _LONGEST)
        self._pause = tenth if self._moved else min(self._pause * 2, _LONGEST)
        self._walk_due = clock.now() + self._pause * random.uniform(0.8, 1.2)
        self._moved = 0

    def _drop(self) -> None:
        try:
            gone = drop_months(self._policy.archive_seconds or 0, using=self._using)
        except OUTAGE as error:
            if sqlstate(error) != "55P03":
                raise
            logger.warning("months of the archive could not be dropped, since it is being read; later again")
        else:
            if gone:
                logger.info("dropped months=%s of the job archive", ",".join(gone))
