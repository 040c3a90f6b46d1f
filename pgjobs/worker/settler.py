"""Settlement of jobs in groups, so that a lone job is settled at once and a flood is amortised."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import DatabaseError

from pgjobs import signals
from pgjobs.connections import is_outage
from pgjobs.exceptions import LeaseLost
from pgjobs.queue.attempts import Ended
from pgjobs.queue.outcomes import Finished, Raised, Snoozed
from pgjobs.queue.settle import landed, settle, settle_nothing, still_held, written
from pgjobs.worker.group import GroupWriter
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.kinds import JOBS

logger = logging.getLogger("pgjobs.worker")


class Settler(GroupWriter[tuple[Holding, Ended]]):
    """Writes how jobs ended. The fence makes every repetition safe."""

    name = "settler"

    def __init__(
        self,
        using: str,
        holdings: Holdings,
        put_off: Callable[[float], None],
        counted: Callable[[list[Ended]], None],
    ) -> None:
        super().__init__(using)
        self._counted = counted
        """Told of the attempts whose end is written."""
        self._holdings = holdings
        self._put_off = put_off
        """Told in how many seconds a job that goes back to the queue becomes due."""

    def settled(self, holding: Holding, ended: Ended) -> None:
        """Take an end in."""
        self.put((holding, ended))

    def ready(self) -> None:
        """Send the settlement that most jobs need, of no job."""
        settle_nothing(using=self.using)

    def needed(self) -> bool:
        """While jobs are in hand; how executions end is not written here."""
        return bool(self._holdings.of(JOBS.model.LEASE.label))

    def write(self, group: list[tuple[Holding, Ended]]) -> None:
        """A row that the database refuses does not hold up the others; its lease is left to lapse."""
        if len({ended.job.lease.pk for _, ended in group}) < len(group) > 1:
            # One job was taken back and claimed again by this same process: its two ends go one after the other.
            for one in group:
                self.write([one])
            return
        try:
            self._write(group)
        except DatabaseError as error:
            if is_outage(error):
                raise
            if len(group) > 1:
                for one in group:
                    self.write([one])
                return
            [(holding, _)] = group
            logger.exception("job=%s its end cannot be written; its lease will lapse", holding.lease.pk)
            self._holdings.drop([holding])

    def _write(self, group: list[tuple[Holding, Ended]]) -> None:
        """Settle, and ask of what did not move whether it had moved before."""
        to_write = {e.job.lease.pk: e for _, e in group if not isinstance(e.outcome, Finished)}
        moved = settle(list(to_write.values()), using=self.using) if to_write else set()
        refused = [ended for pk, ended in to_write.items() if pk not in moved]
        if refused:
            # The answer to an earlier try may have been lost with its connection.
            moved |= landed(refused, using=self.using)
        group = self._put_locked_off(group, moved, refused)
        self._holdings.drop(holding for holding, _ in group)
        counted = []
        for holding, ended in group:
            if isinstance(ended.outcome, Finished) or ended.job.lease.pk in moved:
                if isinstance(ended.outcome, Raised | Snoozed):
                    self._put_off(ended.outcome.delay)
                counted.append(ended)
            else:
                _refused(holding, ended)
        self._counted(counted)
        if signals.job_settled.receivers:
            for ended in counted:
                _announce(ended)

    def _put_locked_off(
        self, group: list[tuple[Holding, Ended]], moved: set[int], refused: list[Ended]
    ) -> list[tuple[Holding, Ended]]:
        """Defer what is still held but locked by another transaction; the rest of the group."""
        asked = [ended for ended in refused if ended.job.lease.pk not in moved]
        locked = still_held(asked, using=self.using) if asked else set()
        for holding, ended in group:
            if ended.job.lease.pk in locked and not isinstance(ended.outcome, Finished):
                self.defer((holding, ended))
        return [
            (holding, ended)
            for holding, ended in group
            if ended.job.lease.pk not in locked or isinstance(ended.outcome, Finished)
        ]


def _announce(ended: Ended) -> None:
    if not signals.heard(signals.job_settled, ended.job.job_type):
        return
    end = None if isinstance(ended.outcome, Finished) else written(ended)
    signals.job_settled.send_robust(
        ended.job.job_type,
        job_id=ended.job.lease.pk,
        attempt=ended.job.attempt,
        worker=ended.job.lease.owner,
        status="succeeded" if end is None else end.status.value,
        seconds=ended.seconds,
        error=end.problem.message if end and end.problem else "",
    )


def _refused(holding: Holding, ended: Ended) -> None:
    holding.lost = True
    lease = ended.job.lease
    logger.warning(
        "job=%s attempt=%s worker=%s outcome refused: %s",
        lease.pk,
        ended.job.attempt,
        lease.owner,
        LeaseLost("job", lease.pk),
    )
    signals.lease_lost.send_robust(None, label=lease.label, pk=lease.pk, worker=lease.owner)
