"""Renewal of all leases in one statement, on a thread and connection that no handler can hold up."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from pgjobs import signals
from pgjobs.backoff import Backoff
from pgjobs.conf import get_settings
from pgjobs.leases.renew import renew
from pgjobs.queue.progress import write_progress
from pgjobs.worker import clock, deadlines, keeping, lingering, registration
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.kinds import KINDS, Kind
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.registration import Vitals
from pgjobs.worker.service import Service

logger = logging.getLogger("pgjobs.worker")

_LOOK_FOR_SILENT = 30.0  # seconds; every worker looks after the others


class Heartbeat(Service):
    """Renews, touches the worker's row, writes progress, and watches timeouts."""

    name = "heartbeat"
    interval = 0.25  # for progress and timeouts; the database is asked only when something is due
    reconnect = Backoff(
        base=0.2, cap=0.8, jitter=0.25
    )  # never above 1 s: a lease must outlive a short outage

    def __init__(
        self,
        using: str,
        options: WorkerOptions,
        holdings: Holdings,
        vitals: Callable[[], Vitals],
        on_stuck: Callable[[Holding], None],
    ) -> None:
        super().__init__(using)
        self.interval = min(self.interval, options.heartbeat_seconds / 2)
        self._options = options
        self._holdings = holdings
        self._vitals = vitals
        self._on_stuck = on_stuck
        self._renewed_at = clock.now()
        self._silent_due = self._renewed_at
        self._progress: dict[Holding, str] = {}
        """Of each holding what was written last."""
        self._asked = threading.Condition()
        self._round = 0
        self._renew_now = False

    def confirm(self, holding: Holding) -> bool:
        """Ask the database at once whether ``holding`` is still held. Waits at most a few seconds."""
        with self._asked:
            # A round that is under way may have asked before the doubt arose: wait for the one after it.
            wanted = self._round + 2
            self.renew_now()
            self._asked.wait_for(
                lambda: holding.lost or clock.now() < holding.good_until or self._round >= wanted,
                timeout=min(5.0, self._options.lease_seconds),
            )
        return not holding.lost and clock.now() < holding.good_until

    def renew_now(self) -> None:
        """Do not wait for the time of the next renewal: there is something to tell."""
        self._renew_now = True
        self.wake()

    def tick(self) -> None:
        """Whatever is due."""
        for holding in deadlines.enforce(self._holdings.all(), get_settings().stuck_grace_seconds):
            self._on_stuck(holding)
        keeping.give_up()
        lingering.tell(self._holdings.all(), get_settings().workflow_slow_turn_seconds)
        if self._renew_now or clock.now() - self._renewed_at >= self._options.heartbeat_seconds:
            self._renew()
        self._write_progress()

    def _renew(self) -> None:
        self._renew_now = False
        asked_at = clock.now()
        try:
            for kind in KINDS:
                self._renew_kind(kind)
            registration.touch(self._options.name, self._vitals(), using=self.using)
            self._renewed_at = asked_at
            if asked_at >= self._silent_due:
                self._silent_due = asked_at + _LOOK_FOR_SILENT * random.uniform(0.8, 1.2)
                registration.note_silent(using=self.using)
        finally:
            with self._asked:
                self._round += 1
                self._asked.notify_all()

    def _renew_kind(self, kind: Kind) -> None:
        """All leases of one table, in one statement; none when there are none."""
        asked_at = clock.now()
        held = [holding for holding in self._holdings.of(kind.model.LEASE.label) if not holding.lost]
        leases = [holding.lease for holding in held]
        answer = renew(kind.model, leases, lease_seconds=self._options.lease_seconds, using=self.using)
        for holding in self._holdings.renewed(held, answer, asked_at):
            label, pk = holding.place
            logger.warning("%s=%s worker=%s lost its lease", label, pk, self._options.name)
            signals.lease_lost.send_robust(None, label=label, pk=pk, worker=self._options.name)

    def _write_progress(self) -> None:
        # Holdings are only read: clearing there would lose what the handler says in between.
        latest = {h: told for h in self._holdings.all() if (told := h.progress) is not None and not h.lost}
        news = [(h.lease, told) for h, told in latest.items() if self._progress.get(h) != told]
        if news:
            write_progress(news, using=self.using)
        self._progress = latest
