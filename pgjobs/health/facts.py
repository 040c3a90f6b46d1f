"""What the rules look at: each read is made once, when the first rule asks, and its failure is every asker's."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import Error

from pgjobs.conf import Settings, get_settings
from pgjobs.health import endings, work, workers
from pgjobs.health.reading import Reader
from pgjobs.health.workers import WorkerRow, read_workers, serving
from pgjobs.queue.models import QueuePause
from pgjobs.queue.pauses import QUEUE, paused
from pgjobs.queue.standing import Standing, standing
from pgjobs.queue.stats import COUNT_LIMIT

READY_LIMIT = 1_000
"""Sentences count so far; the table of queues counts further."""

OLD_TRANSACTION_SECONDS = 600
"""A transaction that has been open for longer is worth a problem."""

STUCK_BULK_SECONDS = 120
"""A bulk operation that has not moved for so long is stuck."""

FAR = {"most": COUNT_LIMIT + 1, "most_later": COUNT_LIMIT + 1}
"""How far the table of queues counts what is due, and what is due later."""

Fact = TypeVar("Fact")


class Facts:
    """One look at the tables. Attributes raise what the database raised."""

    def __init__(self, reader: Reader, *, far: bool = False) -> None:
        self.reader = reader
        self.settings: Settings = get_settings()
        self.far = far
        """Count what waits up to ``COUNT_LIMIT``, for the table of queues."""
        self._known: dict[str, Any] = {}

    @property
    def clock(self) -> dt.datetime:
        """The database's, as the examination began."""
        return self._workers[0]

    @property
    def workers(self) -> list[WorkerRow]:
        """All rows of workers, as far as they are read."""
        return self._workers[1]

    @property
    def workers_are_cut(self) -> bool:
        """Whether there are more of those that are alive, or were an hour ago, than were read."""
        last = self.workers[-1] if len(self.workers) >= workers.MOST else None
        return last is not None and last.stopped_at is None and last.heartbeat_age < dt.timedelta(hours=1)

    @property
    def waiting(self) -> dict[str, work.Waiting]:
        """What waits, by queue."""
        return self._waiting[0]

    @property
    def waiting_is_cut(self) -> bool:
        """Whether more waits in other queues or priorities than was looked at."""
        return self._waiting[1]

    @property
    def held(self) -> list[work.Held]:
        """What runs."""
        return self._held_and_dead[0]

    @property
    def held_is_cut(self) -> bool:
        """Whether more runs than was looked at."""
        running = Counter[str]()
        for each in self.held:
            running[each.kind] += each.running
        return max(running.values(), default=0) >= work.RUNNING

    @property
    def newest_minute(self) -> dt.datetime | None:
        """The last minute in which anything was counted."""
        return self._rates[0]

    @property
    def rates(self) -> dict[str, work.Rate]:
        """What ended in the last minutes, by queue."""
        return self._rates[1]

    @property
    def arrivals(self) -> dict[str, float]:
        """Jobs enqueued per minute, by queue."""
        if self.far:
            return self._rates_and_arrivals[1]
        return self._once("arrivals", lambda: work.read_arrivals(self.reader))

    @property
    def new_causes(self) -> list[endings.NewCause]:
        """Fingerprints of the last hour that nobody knows of."""
        known = self.known_causes
        return self._once("new_causes", lambda: endings.read_new_causes(self.reader, known=known))

    @property
    def dead_rates(self) -> list[tuple[str, str, int, float]]:
        """Types that die far more than usual, of causes that nobody knows of."""
        known = self.known_causes
        return self._once("dead_rates", lambda: endings.read_dead_rates(self.reader, known=known))

    @property
    def standing(self) -> dict[str, Standing]:
        """What is acknowledged or muted, and what was and came back, by fingerprint."""
        return self._once("standing", lambda: self.reader.within(lambda: standing(using=self.reader.using)))

    @property
    def known_causes(self) -> list[str]:
        """Fingerprints that somebody knows of: they are not told."""
        return [name for name, each in self.standing.items() if each.holds]

    @property
    def dead(self) -> work.Dead:
        """Dead and failed jobs, in all and of late."""
        return self._held_and_dead[1]

    @property
    def waiting_types(self) -> list[endings.WaitingType]:
        """What stands at the head of the queues whose oldest has waited for a minute."""
        limit = self.clock - dt.timedelta(minutes=1)
        queues = [(each.oldest_at, name) for name, each in self.waiting.items() if each.oldest_at]
        old = [name for at, name in sorted(queues) if at < limit][:20]
        return self._once("waiting_types", lambda: endings.read_waiting_types(self.reader, old))

    @property
    def workflows(self) -> endings.WorkflowTrouble:
        """Approvals and paused executions."""
        most = COUNT_LIMIT + 1 if self.far else 1
        grace = 30 + 2 * self.settings.idle_poll_seconds
        return self._once("workflows", lambda: endings.read_workflows(self.reader, grace=grace, most=most))

    @property
    def stuck_bulks(self) -> list[endings.StuckBulk]:
        """Bulk operations that do not move."""
        return self._burdens_and_bulks[1]

    @property
    def burdens(self) -> list[endings.Burden]:
        """What the database carries."""
        return self._burdens_and_bulks[0]

    @property
    def pauses(self) -> list[QueuePause]:
        """The pauses in force, of queues and of types."""
        return self._once("pauses", lambda: self.reader.within(paused))

    def pause_of(self, queue: str) -> QueuePause | None:
        """The pause of that queue."""
        return next((each for each in self.pauses if each.kind == QUEUE and each.name == queue), None)

    @property
    def reap_grace(self) -> float:
        """Seconds after which a lapsed lease should have been taken back."""
        return 2 * self.settings.reap_seconds + 2

    def serving(self, queue: str) -> list[WorkerRow]:
        """The workers that are there to claim from it."""
        return serving(self.workers, queue)

    def running(self, queue: str) -> int:
        """Rows of both kinds that run in it."""
        return sum(each.running for each in self.held if each.queue == queue)

    def slo(self, queue: str) -> float:
        """Seconds that the oldest due row of it may wait."""
        return self.settings.queue_slo.get(queue, self.settings.queue_slo_seconds)

    @property
    def _workers(self) -> tuple[dt.datetime, list[WorkerRow]]:
        return self._once("workers", lambda: read_workers(self.reader))

    @property
    def _waiting(self) -> tuple[dict[str, work.Waiting], bool]:
        limits = FAR if self.far else {"most": READY_LIMIT + 1, "most_later": 1}
        return self._once("waiting", lambda: work.read_waiting(self.reader, **limits))

    @property
    def _rates(self) -> tuple[dt.datetime | None, dict[str, work.Rate]]:
        if self.far:
            return self._rates_and_arrivals[0]
        return self._once("rates", lambda: work.read_rates(self.reader))

    @property
    def _rates_and_arrivals(
        self,
    ) -> tuple[tuple[dt.datetime | None, dict[str, work.Rate]], dict[str, float]]:
        return self._once("rates_and_arrivals", lambda: work.read_rates_and_arrivals(self.reader))

    @property
    def _held_and_dead(self) -> tuple[list[work.Held], work.Dead]:
        most = self.settings.dead_alert + 1
        return self._once(
            "held_and_dead",
            lambda: work.read_held_and_dead(self.reader, grace=self.reap_grace, most_dead=most),
        )

    @property
    def _burdens_and_bulks(self) -> tuple[list[endings.Burden], list[endings.StuckBulk]]:
        limits = {"seconds": OLD_TRANSACTION_SECONDS, "bulk_seconds": STUCK_BULK_SECONDS}
        return self._once("burdens", lambda: endings.read_burdens_and_bulks(self.reader, **limits))

    def _once(self, name: str, read: Callable[[], Fact]) -> Fact:
        if name not in self._known:
            try:
                self._known[name] = read()
            except Error as error:
                self._known[name] = error
        known: Any = self._known[name]
        if isinstance(known, Error):
            raise known
        fact: Fact = known
        return fact
