"""The claim loop: ask the slots for room, claim that many, hand them over; then sleep until woken or due."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable

from pgjobs.conf import get_settings
from pgjobs.connections import OUTAGE
from pgjobs.leases.claim import anything_due, seconds_until_due
from pgjobs.leases.release import release_claim
from pgjobs.worker import clock
from pgjobs.worker.holdings import Holdings
from pgjobs.worker.kinds import Kind, known_kinds
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.reaper import Reaper
from pgjobs.worker.service import Service
from pgjobs.worker.slots import Slots
from pgjobs.worker.sweeper import Sweeper

_LOCKED_ELSEWHERE = 0.05  # a due row that could not be claimed is in another claim: it is gone in a moment


class Producer(Service):
    """Keeps the slots full. Reaps between claims, since both need nothing but this connection."""

    name = "producer"

    def __init__(
        self,
        using: str,
        options: WorkerOptions,
        slots: Slots,
        holdings: Holdings,
        *,
        hearing: Callable[[], bool],
        on_drained: Callable[[], None],
    ) -> None:
        super().__init__(using)
        self._options = options
        self._slots = slots
        self._holdings = holdings
        self._hearing = hearing
        self._on_drained = on_drained
        self._reaper = Reaper(get_settings().reap_seconds, using=using) if options.reaper else None
        self._kinds = known_kinds()
        self.sweeper = Sweeper(get_settings().idle_poll_seconds, using=using)
        self._doubtful: dict[uuid.UUID, tuple[Kind, float]] = {}
        self._hungry = True
        self._idle_polls = 0
        self._polled_at = clock.now()
        self._claimed_any = False

    def poll_age(self) -> float:
        """Seconds since the loop last turned."""
        return clock.now() - self._polled_at

    def slot_freed(self) -> None:
        """Claim again if the last claim left something behind; otherwise the next poll or notification will."""
        if self._hungry:
            self.wake()

    def tick(self) -> None:
        """One turn: recover, reap, claim, and set the time of the next turn."""
        self._hand_back_doubtful()
        if self._reaper is not None:
            self._reaper.run_if_due()
            self.sweeper.run_if_due()
        room = self._room()
        found = self._claim(room) if room > 0 else 0
        self._polled_at = clock.now()
        self._hungry = found == room
        self.interval = self._pause(found, room)

    def last_tick(self) -> None:
        """Nothing claimed may be left behind unknown."""
        self._hand_back_doubtful()

    def _room(self) -> int:
        if self._options.suspect and self._claimed_any:
            return 0
        return self._slots.free

    def _claim(self, limit: int) -> int:
        """Claim from each kind in turn; whose turn comes first alternates, so that none is starved."""
        found = 0
        for kind in self._kinds:
            if found < limit:
                found += self._claim_kind(kind, limit - found)
        self._kinds.append(self._kinds.pop(0))
        return found

    def _claim_kind(self, kind: Kind, limit: int) -> int:
        token = uuid.uuid4()
        asked_at = clock.now()
        try:
            claimed = kind.claim(
                owner=self._options.name,
                token=token,
                limit=limit,
                lease_seconds=self._options.lease_seconds,
                names=kind.names(),
                queues=self._options.queues,
                suspects=self._options.suspect,
                using=self.using,
            )
        except OUTAGE:
            # Whether it was committed is unknown: the reply may be what was lost.
            self._doubtful[token] = (kind, clock.now() + self._options.lease_seconds)
            raise
        for holding in self._holdings.add(claimed, asked_at):
            self._slots.run(holding)
        self._claimed_any = self._claimed_any or bool(claimed)
        return len(claimed)

    def _hand_back_doubtful(self) -> None:
        """Look for claims whose reply was lost, until one is found or its lease would have lapsed anyway.

        Asking once is not enough: the server may still be committing when the client is back.
        """
        for token, (kind, until) in list(self._doubtful.items()):
            if release_claim(kind.model, token, using=self.using) or clock.now() > until:
                del self._doubtful[token]

    def _pause(self, found: int, room: int) -> float:
        if found == room > 0:
            return 0.0
        if self._options.drain or self._options.suspect:
            return self._drained_pause(found)
        self._idle_polls = 0 if found or room <= 0 else self._idle_polls + 1
        pause = self._options.poll_seconds
        if self._idle_polls and self._hearing():
            slowest = max(get_settings().idle_poll_seconds, pause)
            pause = min(pause * 1.5 ** min(self._idle_polls, 20), slowest)
        pause *= random.uniform(0.8, 1.2)
        if self._idle_polls:
            pause = min(pause, *self._next_due())
        if self._reaper is not None:
            pause = min(pause, self._reaper.seconds_until_due(), self.sweeper.seconds_until_due())
        return min(pause, 1.0) if self._doubtful else pause

    def _next_due(self) -> list[float]:
        """Seconds until the next row of each kind is due, where one is known."""
        found = [
            seconds_until_due(kind.model, queues=self._options.queues, using=self.using)
            for kind in self._kinds
        ]
        return [math.inf, *(seconds + 0.001 for seconds in found if seconds is not None)]

    def _drained_pause(self, found: int) -> float:
        if found or len(self._holdings):
            return _LOCKED_ELSEWHERE
        if self._options.suspect or not self._anything_due():
            self._on_drained()
            return self._options.poll_seconds
        return _LOCKED_ELSEWHERE

    def _anything_due(self) -> bool:
        return any(
            anything_due(kind.model, kinds=kind.names(), queues=self._options.queues, using=self.using)
            for kind in self._kinds
        )
