"""The claim loop: ask the slots for room, claim that many, hand them over; then sleep until woken or due."""

from __future__ import annotations

import math
import random
import threading
import uuid
from collections.abc import Callable

from pgjobs.conf import get_settings
from pgjobs.leases.due import suspects_waiting
from pgjobs.leases.lanes import Position
from pgjobs.leases.release import release, release_claim
from pgjobs.queue.enqueue import notify
from pgjobs.worker import clock
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.kinds import JOBS, Kind, known_kinds
from pgjobs.worker.lookout import Lookout, View
from pgjobs.worker.options import START_AHEAD, WorkerOptions
from pgjobs.worker.pace import Pace
from pgjobs.worker.reaper import Reaper
from pgjobs.worker.service import Service
from pgjobs.worker.slots import Slots
from pgjobs.worker.statistics import Statistics
from pgjobs.worker.sweeper import Sweeper

_STALLED = 1.0  # seconds for which rows may wait in this process while nothing of it begins
_LATE = 0.1  # the same where rows were claimed because a slot was to be free in a moment
_MOMENT = 0.1
_SUSPECTS_IN_A_ROW = 100
"""One process runs so many of them, one after another; then a fresh one does."""
_BEING_SETTLED = 0.005
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
        pace: Pace,
        statistics: Statistics,
        hearing: Callable[[], bool],
        on_claimed: Callable[[], None],
        on_drained: Callable[[], None],
        on_suspects: Callable[[], None],
    ) -> None:
        super().__init__(using)
        self._options = options
        self._slots = slots
        self._holdings = holdings
        self._pace = pace
        self._statistics = statistics
        self._refill_at = slots.size - 1
        self._hearing = hearing
        self._on_claimed = on_claimed
        self._on_drained = on_drained
        self._on_suspects = on_suspects
        self._kinds = known_kinds()
        self._lookout = Lookout(self._kinds, options.queues, using=using)
        self._reaper = (
            Reaper(
                get_settings().reap_seconds, using=using, on_requeued=on_suspects, counted=statistics.reaped
            )
            if options.reaper
            else None
        )
        self._positions = {kind: Position() for kind in self._kinds}
        self.sweeper = Sweeper(get_settings().idle_poll_seconds, name=options.name, using=using)
        self._empty_until: dict[Kind, float] = {}
        """In a flood of one kind, when to ask again for another that had nothing."""
        self._doubtful: dict[uuid.UUID, tuple[Kind, float]] = {}
        self._hungry = True
        self._foreseen = math.inf
        """Seconds until a slot is known to be free in a moment."""
        self._idle_polls = 0
        self._alarm = math.inf
        self._alarm_lock = threading.Lock()
        self._wakes_at = 0.0
        self._polled_at = clock.now()
        self._claimed = 0
        """Suspects so far."""
        self._claimed_at = clock.now()
        self._called = True

    def wake(self) -> None:
        """Tick now, and look for work whatever the last look said."""
        self._called = True
        super().wake()

    def poll_age(self) -> float:
        """Seconds since the loop last turned."""
        return clock.now() - self._polled_at

    def chores(self) -> dict[str, float]:
        """Seconds since this process last did each chore, by its name; those it has not done are left out."""
        ages = {"statistics": self._statistics.age, **self.sweeper.ages()}
        if self._reaper is not None:
            ages["reaper"] = self._reaper.age
        return {name: age for name, age in ages.items() if age < math.inf}

    def slot_freed(self) -> None:
        """Claim again if the last claim left something behind; otherwise the next poll or notification will.

        While rows are held ahead of the slots, only when half of those are used up: so claims stay large.
        """
        if self._hungry and self._slots.in_hand <= self._refill_at:
            self.wake()

    def due_in(self, seconds: float) -> None:
        """A row that this process has put off becomes due then: do not sleep past it. Safe from any thread."""
        due = clock.now() + seconds + 0.001
        with self._alarm_lock:
            self._alarm = min(self._alarm, due)
        if due < self._wakes_at:
            self.wake()

    def tick(self) -> None:
        """One turn: recover, reap, claim, and set the time of the next turn."""
        with self._alarm_lock:
            if clock.now() >= self._alarm:
                self._alarm = math.inf
        self._statistics.flush_if_due()
        called, self._called = self._called, False
        if self._idle_polls and not called and not self._doubtful and self._nothing_to_do():
            return
        self._hand_back_doubtful()
        if self._reaper is not None:
            self._reaper.run_if_due()
        if not self._options.suspect:
            self.sweeper.run_if_due()  # also without a reaper: nobody else wakes what is due
        if self._slots.stalled(self._patience()):
            self._hand_back(self._slots.take_waiting())
        room = self._room()
        found = self._claim(room) if room > 0 else 0
        self._polled_at = clock.now()
        self._hungry = found >= room
        self._sleep_for(self._pause(found, room))

    def _nothing_to_do(self) -> bool:
        """Whether an idle process may go on sleeping: one statement in place of a claim, a sweep and a reap."""
        view = self._lookout.look()
        self._tell_others(view)
        if view.due or self.sweeper.seconds_until_due() <= 0:
            return False
        if self._reaper is not None and self._reaper.seconds_until_due() <= 0:
            return False
        self._polled_at = clock.now()
        self._idle_polls += 1
        self._sleep_for(min(self._idle_pause(), view.seconds + 0.001))
        return True

    def _tell_others(self, view: View) -> None:
        self.sweeper.looked(view.wait_seconds, bulk=view.bulk)
        if self._reaper is not None:
            self._reaper.looked(view.lapse_seconds)
        if view.suspects:
            self._on_suspects()

    def _sleep_for(self, pause: float) -> None:
        self.interval = min(pause, max(self._alarm - clock.now(), 0.0))
        self._wakes_at = clock.now() + self.interval

    def last_tick(self) -> None:
        """Nothing claimed may be left behind unknown."""
        self._hand_back_doubtful()

    def _room(self) -> int:
        if self._options.suspect and (len(self._holdings) or self._claimed >= _SUSPECTS_IN_A_ROW):
            return 0  # one at a time: were two in hand, a death would charge both
        ahead = 0 if self._options.suspect else self._pace.ahead()
        soon = 0 if ahead else self._free_soon()
        # Above this many in hand there is no hurry: below it a slot is idle, or half of what is ahead is used up.
        self._refill_at = self._slots.size + (ahead // 2 if ahead else soon - 1)
        in_hand = self._slots.in_hand
        if in_hand > self._refill_at:
            return 0
        # At most half of what is ahead in one claim: so the next one is under way while the slots have the first half.
        at_once = max(self._slots.size - in_hand, 0) + (ahead + 1) // 2 + soon
        return min(self._slots.size + ahead + soon - in_hand, at_once)

    def _free_soon(self) -> int:
        """Slots that will be free in a moment; and note when the next one is so near to it."""
        self._foreseen = math.inf
        if self._options.suspect or not self._pace.foresees():
            return 0
        soon, self._foreseen = self._pace.ending(self._slots.running())
        return soon

    def _patience(self) -> float:
        return _STALLED if self._pace.ahead() else _LATE

    def _claim(self, limit: int) -> int:
        """Claim from each kind in turn.

        In a flood whose turn comes first alternates, so that none is starved; a kind that had nothing is asked again
        after a moment. With room to spare the first is the kind that had something last, so that a lone row does not
        wait for the answer about the other table.
        """
        resting = [kind for kind in self._kinds if clock.now() < self._empty_until.get(kind, 0.0)]
        found: dict[Kind, int] = {}
        for kind in sorted(self._kinds, key=resting.__contains__):
            if (left := limit - sum(found.values())) > 0:
                found[kind] = self._claim_kind(kind, left)
                self._empty_until[kind] = 0.0 if found[kind] else clock.now() + _MOMENT
        total = sum(found.values())
        if total >= limit:
            self._kinds.append(self._kinds.pop(0))
        elif total:
            self._kinds.sort(key=lambda kind: not found[kind])
        return total

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
                sharing=self._claimed > 0,
                position=self._positions[kind],
                using=self.using,
            )
        except Exception:
            # Whether it was committed is unknown: the reply may be what was lost.
            self._doubtful[token] = (kind, clock.now() + self._options.lease_seconds)
            raise
        holdings = self._holdings.add(claimed, asked_at)
        if not self.stopping:  # what arrives after that is handed back with the rest
            self._slots.run(holdings)
            if claimed and kind is JOBS:
                self._on_claimed()
        if claimed and self._options.suspect:
            self._claimed, self._claimed_at = self._claimed + 1, clock.now()
        return len(claimed)

    def _hand_back(self, holdings: list[Holding]) -> None:
        """Rows that wait behind long ones in this process go back, unspent, to whoever has a slot."""
        self._pace.forget()
        for kind in self._kinds:
            leases = [h.lease for h in holdings if h.lease.label == kind.model.LEASE.label]
            release(kind.model, leases, using=self.using)
        self._holdings.drop(holdings)
        if get_settings().notify:
            notify(using=self.using)

    def _hand_back_doubtful(self) -> None:
        """Look for claims whose reply was lost, until one is found or its lease would have lapsed anyway.

        Asking once is not enough: the server may still be committing when the client is back.
        """
        for token, (kind, until) in list(self._doubtful.items()):
            if release_claim(kind.model, token, using=self.using) or clock.now() > until:
                del self._doubtful[token]

    def _pause(self, found: int, room: int) -> float:
        if found >= room > 0 and self._slots.in_hand <= self._refill_at:
            return 0.0
        until_foreseen = self._foreseen if found >= room else math.inf
        if self._slots.in_hand > self._slots.busy:
            until_foreseen = min(until_foreseen, self._patience())
        if self._options.drain or self._options.suspect:
            return min(self._drained_pause(found), until_foreseen)
        # Rows that wait for a slot here are work too: an idle sleep would keep them from whoever has a free one.
        idle = not found and room > 0 and self._slots.in_hand == self._slots.busy
        self._idle_polls = self._idle_polls + 1 if idle else 0
        pause = self._next_due() if self._idle_polls else math.inf
        return min(pause, self._idle_pause(), until_foreseen)

    def _idle_pause(self) -> float:
        """Until the next poll or chore: longer the longer nothing was found, where notifications are heard."""
        pause = self._options.poll_seconds
        if self._idle_polls and self._hearing():
            slowest = max(get_settings().idle_poll_seconds, pause)
            pause = min(pause * 1.5 ** min(self._idle_polls, 20), slowest)
        pause *= random.uniform(0.8, 1.2)
        if self._reaper is not None:
            pause = min(pause, self._reaper.seconds_until_due())
        pause = min(pause, self.sweeper.seconds_until_due(), self._statistics.seconds_until_due())
        return min(pause, 1.0) if self._doubtful else pause

    def _next_due(self) -> float:
        """Seconds until there may be something to claim, by what the tables say now.

        A row that is due although the claim found none is in another claim, which may not keep it.
        """
        view = self._lookout.look()
        self._tell_others(view)
        return _LOCKED_ELSEWHERE if view.due else view.seconds + 0.001

    def _drained_pause(self, found: int) -> float:
        if found or len(self._holdings):
            settling = self._options.suspect and not self._slots.in_hand
            return _BEING_SETTLED if settling else _LOCKED_ELSEWHERE
        pause = self._next_suspect() if self._options.suspect else self._next_due()
        if pause <= _LOCKED_ELSEWHERE or (self._options.suspect and pause < math.inf):
            return pause
        self._on_drained()
        return self._options.poll_seconds

    def _next_suspect(self) -> float:
        """Seconds until the next suspect is due that is worth waiting for in this process; infinity for none.

        It was started a little ahead of its first, and rows that were taken back together come due one soon after
        the other.
        """
        if self._claimed >= _SUSPECTS_IN_A_ROW or clock.now() - self._claimed_at > 2 * START_AHEAD:
            return math.inf
        soonest = math.inf
        for kind in self._kinds:
            due, seconds = suspects_waiting(
                kind.model,
                kinds=kind.names(),
                queues=self._options.queues,
                sharing=self._claimed > 0,
                using=self.using,
            )
            if due:
                return _LOCKED_ELSEWHERE
            soonest = min(soonest, math.inf if seconds is None else seconds + 0.001)
        return soonest if soonest < START_AHEAD else math.inf
