"""What this process has settled since the last flush, counted in memory and written every ten seconds if at all."""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Sequence

from django.db import Error, transaction

from pgjobs.conf import get_settings
from pgjobs.connections import brief_locks, busy, is_outage
from pgjobs.leases.reap import Reaped
from pgjobs.queue import hours, rollups
from pgjobs.queue.attempts import Ended
from pgjobs.queue.outcomes import Abandoned, Finished, Snoozed, Succeeded
from pgjobs.queue.rollups import Tally
from pgjobs.queue.settle import written
from pgjobs.queue.states import JobStatus
from pgjobs.worker import clock

logger = logging.getLogger("pgjobs.worker")

_FLUSH_EVERY = 10.0
_PATIENCE = "1s"
_PRUNE_EVERY = 3600.0
_ADD_UP_EVERY = 600.0
_FIELDS = {
    JobStatus.SUCCEEDED: "done",
    JobStatus.FAILED: "failed",
    JobStatus.DEAD: "dead",
    JobStatus.PENDING: "retried",
}


def count_reaped(reaped: Reaped, *, using: str) -> None:
    """As :meth:`Statistics.reaped`, written at once: for a process that keeps no figures.

    Those that cannot be written now are lost: the rows have been taken back already.
    """
    try:
        with transaction.atomic(using=using):
            brief_locks(using, _PATIENCE)
            rollups.add(_tallied(reaped), using=using)
    except Error:
        logger.exception("the figures of %s reaped jobs cannot be written", len(reaped))


def _tallied(reaped: Reaped) -> dict[tuple[str, str], Tally]:
    """Attempts that ended with their worker. How long they ran nobody knows."""
    tallies: dict[tuple[str, str], Tally] = {}
    for (queue, job_type, spent), jobs in reaped.counts.items():
        tally = tallies.setdefault((queue, job_type), Tally())
        if spent:
            tally.dead += jobs
        else:
            tally.retried += jobs
    return tallies


class Statistics:
    """Counted by the settler's thread, flushed by the claim loop's. Nothing counted, no statement."""

    def __init__(self, *, using: str) -> None:
        self._using = using
        self._lock = threading.Lock()
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._due = math.inf
        self._prune_due = clock.now()
        self._add_up_due = clock.now()
        self._ended_at: float | None = None
        self._flushed_at = -math.inf

    def ended(self) -> None:
        """A job or a turn of an execution has come to an end."""
        self._ended_at = clock.now()

    @property
    def age(self) -> float:
        """Seconds since figures were last written; infinity when none were."""
        return clock.now() - self._flushed_at

    @property
    def done_age(self) -> float | None:
        """Seconds since the last such end; None when there was none."""
        return None if self._ended_at is None else clock.now() - self._ended_at

    def settled(self, group: Sequence[Ended]) -> None:
        """A settlement has moved the rows of these attempts."""
        if group:
            self.ended()
        with self._lock:
            for ended in group:
                if not isinstance(ended.outcome, Snoozed | Abandoned):
                    self._count(ended)

    def reaped(self, reaped: Reaped) -> None:
        """Jobs were taken back from workers that died, who have taken with them what they had counted."""
        self._take_back(_tallied(reaped))

    def _count(self, ended: Ended) -> None:
        """Add one attempt. The lock is held."""
        job = ended.job
        tally = self._tallies.get((job.queue, job.job_type))
        if tally is None:
            tally = self._tallies[job.queue, job.job_type] = Tally()
        if isinstance(ended.outcome, Succeeded | Finished):
            tally.done += 1
        else:
            name = _FIELDS[written(ended).status]
            setattr(tally, name, getattr(tally, name) + 1)
        tally.measure(job.waited, ended.seconds)
        if self._due is math.inf:
            self._due = clock.now() + _FLUSH_EVERY

    def seconds_until_due(self) -> float:
        """How long the next flush may wait."""
        return max(self._due - clock.now(), 0.0)

    def flush_if_due(self) -> None:
        """Write, when there is something and its time has come; sometimes add up hours, and remove what is old."""
        if clock.now() >= self._due:
            self.flush()
            if clock.now() >= self._prune_due:
                self._prune_due = clock.now() + _PRUNE_EVERY
                rollups.prune(get_settings().statistics_days, using=self._using)
                hours.prune(get_settings().statistics_days, using=self._using)
            if clock.now() >= self._add_up_due:
                self._add_up_due = clock.now() + _ADD_UP_EVERY * random.uniform(0.8, 1.2)
                if not hours.add_up(get_settings().statistics_days, using=self._using):
                    self._add_up_due = clock.now()  # the next flush goes on

    def flush(self) -> None:
        """Write now. What the database does not take is kept for the next time; if only its answer was lost, those
        few are counted twice."""
        with self._lock:
            tallies, self._tallies = self._tallies, {}
            self._due = math.inf
        if not tallies:
            return
        try:
            with transaction.atomic(using=self._using):
                brief_locks(self._using)  # whoever holds the figures must not hold the claims
                rollups.add(tallies, using=self._using)
            self._flushed_at = clock.now()
        except Error as error:
            self._take_back(tallies)
            if is_outage(error) and not busy(error):
                raise
            logger.exception("the figures of this minute cannot be written yet; work goes on")

    def _take_back(self, tallies: dict[tuple[str, str], Tally]) -> None:
        """Add figures to what the next flush writes."""
        with self._lock:
            for key, tally in tallies.items():
                if key in self._tallies:
                    self._tallies[key].add(tally)
                else:
                    self._tallies[key] = tally
            self._due = min(self._due, clock.now() + _FLUSH_EVERY)
