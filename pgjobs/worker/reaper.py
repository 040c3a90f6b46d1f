"""The chore of taking back lapsed leases: in every worker, and alone in ``runreaper``. Two never harm each other."""

from __future__ import annotations

import functools
import logging
import math
import random
from collections.abc import Callable

from pgjobs.backoff import Backoff
from pgjobs.leases.reap import Reaped, reap_lapsed
from pgjobs.queue import acknowledging, activity
from pgjobs.worker import clock, registration
from pgjobs.worker.kinds import JOBS, KINDS
from pgjobs.worker.statistics import count_reaped

logger = logging.getLogger("pgjobs.worker")

_FORGET_EVERY = 3600.0
_AGAIN = 1.0
_INTERVALS_SEEN = 2.5


class Reaper:
    """Reaps when due; jittered, so that many workers do not look at the same moment."""

    def __init__(
        self,
        interval: float,
        *,
        using: str,
        on_requeued: Callable[[], None] | None = None,
        counted: Callable[[Reaped], None] | None = None,
    ) -> None:
        self._using = using
        self._counted = counted or functools.partial(count_reaped, using=using)
        """Told of the jobs of each batch."""
        self._on_requeued = on_requeued
        self._interval = interval
        self._pace = Backoff(base=interval, cap=interval, jitter=0.2)
        self._due = clock.now() + self._pace.delay(1)
        self._ran_at = -math.inf
        self._looked_at = -math.inf
        self._forget_due = clock.now()

    def seconds_until_due(self) -> float:
        """How long the next pass may wait."""
        return max(self._due - clock.now(), 0.0)

    @property
    def age(self) -> float:
        """Seconds since it last ran, or was told that nothing has lapsed; infinity when it never did."""
        return clock.now() - max(self._ran_at, self._looked_at)

    def looked(self, lapse_seconds: float) -> None:
        """Somebody has just seen that the next lease ends in ``lapse_seconds``, if nobody renews it.

        So the next pass is due then, give or take, or in a few intervals: a lease that is taken meanwhile may be
        shorter. What the last pass could not take is locked by somebody, and is tried once a second.
        """
        now = self._looked_at = clock.now()
        if lapse_seconds <= 0:
            self._due = max(now, self._ran_at + _AGAIN)
        else:
            spread = random.uniform(0, self._interval / 4)
            self._due = now + min(lapse_seconds + spread, self._interval * _INTERVALS_SEEN)

    def run_if_due(self) -> None:
        """One pass, when its time has come."""
        if clock.now() >= self._due:
            self.run()

    def run(self) -> Reaped:
        """Take back every lapsed lease, in batches, and forget what is long gone: workers, happenings, causes."""
        self._ran_at = clock.now()
        self._due = self._ran_at + self._pace.delay(1)
        total = Reaped()
        for kind in KINDS:
            while batch := reap_lapsed(kind.model, using=self._using, on_exhausted=kind.on_exhausted):
                total.add(batch)
                if kind is JOBS:
                    self._counted(batch)
        if total.requeued and self._on_requeued is not None:
            self._on_requeued()
        if total:
            logger.warning("reaped requeued=%s exhausted=%s", total.requeued, total.exhausted)
        if clock.now() >= self._forget_due:
            self._forget_due = clock.now() + _FORGET_EVERY
            registration.forget_old(using=self._using)
            while activity.prune(using=self._using) == activity.PRUNE_BATCH:
                pass
            acknowledging.forget(using=self._using)
        return total
