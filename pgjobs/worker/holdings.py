"""The leases this process holds, and what it knows of each: lost, late, its progress, its deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pgjobs.leases.renew import Renewal
from pgjobs.leases.states import Lease
from pgjobs.queue.attempts import ClaimedJob
from pgjobs.worker import clock
from pgjobs.worker.ledger import Ledger
from pgjobs.workflows.claiming import ClaimedExecution

Claimed = ClaimedJob | ClaimedExecution


@dataclass(slots=True, eq=False)
class Holding:
    """One row in hand. Fields are written by one thread each and read by others."""

    claimed: Claimed
    good_until: float
    """By this process's clock: until then the lease is certain, whatever happened to the process."""
    started_at: float = field(default_factory=clock.now)
    deadline: float | None = None
    """When the handler's timeout ends."""
    lost: bool = False
    timed_out: bool = False
    finishing: bool = False
    """``ctx.finish`` has the row under its own lock, or has settled it: not being held is no loss."""
    ended: bool = False
    """The handler has returned; the settlement may still be under way."""
    progress: str | None = None
    """JSON not yet written, or None."""
    ledger_place: int | None = None
    thread_id: int | None = None
    """The thread that a timeout bounds, while it does."""
    task: Any = None
    called_at: float | None = None
    """When the body of an execution last began or made a durable call."""
    told: int = 0
    """How often it was said that it makes none."""
    body_thread: int | None = None

    @property
    def lease(self) -> Lease:
        """The right to the row."""
        return self.claimed.lease

    @property
    def job(self) -> ClaimedJob:
        """The job, where the row is one."""
        assert isinstance(self.claimed, ClaimedJob)
        return self.claimed

    @property
    def execution(self) -> ClaimedExecution:
        """The execution, where the row is one."""
        assert isinstance(self.claimed, ClaimedExecution)
        return self.claimed

    @property
    def surely_held(self) -> bool:
        """Whether nobody else can have the row yet, and the handler's time is not up."""
        return not self.lost and not self.timed_out and clock.now() < self.good_until

    @property
    def place(self) -> tuple[str, int]:
        """Table and id."""
        return self.lease.label, self.lease.pk


class Holdings:
    """All of them, by table and id."""

    def __init__(self, lease_seconds: float, ledger: Ledger | None = None) -> None:
        self.lease_seconds = lease_seconds
        self._ledger = ledger
        self._lock = threading.Lock()
        self._held: dict[tuple[str, int], Holding] = {}
        self._displaced: set[Holding] = set()
        """Whose row this same process has claimed again, while their code still runs."""

    def add(self, claimed: Iterable[Claimed], asked_at: float) -> list[Holding]:
        """Take rows in whose claim was sent at ``asked_at`` (:func:`clock.now`)."""
        good_until = asked_at + self.lease_seconds
        new = [Holding(row, good_until) for row in claimed]
        with self._lock:
            for holding in new:
                if (before := self._held.get(holding.place)) is not None:
                    self._displaced.add(before)
                    before.lost = before.lost or not (before.ended or before.finishing)
                self._held[holding.place] = holding
        return new

    def begin(self, holding: Holding) -> None:
        """User code is about to run for this row: if the process dies now, the row is charged for it."""
        if self._ledger is not None:
            holding.ledger_place = self._ledger.begin(*holding.place)

    def drop(self, holdings: Iterable[Holding]) -> None:
        """Forget rows that were settled, handed back or lost."""
        holdings = list(holdings)
        if self._ledger is not None:
            for holding in holdings:
                self._ledger.end(holding.ledger_place)
                holding.ledger_place = None
        with self._lock:
            for holding in holdings:
                self._displaced.discard(holding)
                if self._held.get(holding.place) is holding:
                    del self._held[holding.place]

    def all(self) -> list[Holding]:
        """A copy to walk over."""
        with self._lock:
            return [*self._held.values(), *self._displaced]

    def of(self, label: str) -> list[Holding]:
        """Those of one table."""
        return [holding for holding in self.all() if holding.lease.label == label]

    def renewed(self, asked: Iterable[Holding], answer: Renewal, asked_at: float) -> list[Holding]:
        """Note the answer to a renewal that was sent at ``asked_at``; return the newly lost."""
        lost = []
        for holding in asked:
            if holding.lease.pk in answer.extended:
                holding.good_until = asked_at + self.lease_seconds
            elif holding.lease.pk not in answer.held and not (
                holding.lost or holding.ended or holding.finishing
            ):
                holding.lost = True
                lost.append(holding)
        return lost

    def __len__(self) -> int:
        return len(self._held) + len(self._displaced)
