"""Group settlement: whatever ended while the last one was under way goes into the next, so a flood is amortised."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

from pgjobs import signals
from pgjobs.exceptions import LeaseLost
from pgjobs.queue.attempts import Ended
from pgjobs.queue.outcomes import Abandoned, Finished
from pgjobs.queue.settle import landed, settle, written
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.service import Service

logger = logging.getLogger("pgjobs.worker")

_GROUP = 500


class Settler(Service):
    """Writes ends in the order they came. An outage only delays them: the fence makes every repetition safe."""

    name = "settler"
    interval = 3600.0  # woken by every end

    def __init__(self, using: str, holdings: Holdings) -> None:
        super().__init__(using)
        self._holdings = holdings
        self._ends: deque[tuple[Holding, Ended]] = deque()
        self._in_hand: list[tuple[Holding, Ended]] = []
        self._tried = False
        self._empty = threading.Event()
        self._empty.set()

    def put(self, holding: Holding, ended: Ended) -> None:
        """Take an end in; safe from any thread, never blocks on the database."""
        self._ends.append((holding, ended))
        self._empty.clear()  # in this order: the tick that the wake brings sets it again
        self.wake()

    @property
    def unsettled(self) -> int:
        """Ends not yet written."""
        return len(self._ends) + len(self._in_hand)

    def wait_empty(self, timeout: float) -> bool:
        """Wait until every end is written; False when the database did not take them in time."""
        return self._empty.wait(timeout)

    def tick(self) -> None:
        """Write until nothing is left. What met an outage stays in hand and goes first next time."""
        while self._in_hand or self._ends:
            while self._ends and len(self._in_hand) < _GROUP:
                self._in_hand.append(self._ends.popleft())
            self._settle(self._in_hand)
            self._in_hand = []
            self._tried = False
        self._empty.set()
        if self._ends:
            self._empty.clear()
            self.wake()

    def last_tick(self) -> None:
        """The same: nothing that ended is left behind."""
        self.tick()

    def _settle(self, group: Sequence[tuple[Holding, Ended]]) -> None:
        to_write = {e.job.lease.pk: e for _, e in group if not isinstance(e.outcome, Finished)}
        moved: set[int] = set()
        if to_write:
            retrying, self._tried = self._tried, True
            moved = settle(list(to_write.values()), using=self.using)
            refused = [e for pk, e in to_write.items() if pk not in moved]
            if refused and (retrying or any(not isinstance(e.outcome, Abandoned) for e in refused)):
                moved |= landed(refused, using=self.using)
        self._holdings.drop(holding for holding, _ in group)
        for holding, ended in group:
            if isinstance(ended.outcome, Finished) or ended.job.lease.pk in moved:
                _announce(ended)
            else:
                _refused(holding, ended)


def _announce(ended: Ended) -> None:
    if not signals.job_settled.has_listeners(ended.job.job_type):
        return
    finished = isinstance(ended.outcome, Finished)
    end = None if finished else written(ended)
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
