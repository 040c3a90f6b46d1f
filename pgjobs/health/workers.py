"""Workers by what their heartbeat says, by the database's clock; never by what they once said of themselves."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from pgjobs.conf import get_settings
from pgjobs.health.reading import Reader

NEVER_SERVED = "None is known to have served it: does runworkers run, and is the name spelled right?"

MOST = 500
"""Rows that are read."""
_LATE = 2  # heartbeats
SILENT = 3
"""After so many of its heartbeats a worker unheard of is called silent."""

# The present ones first. The table has a row for each process of the last days, so all of it may be read.
_WORKERS = """
SELECT statement_timestamp(), worker.* FROM (SELECT 1) AS one LEFT JOIN LATERAL (
    SELECT id, name, host, pid, queues, slots, busy, version, code_version, handlers, heartbeat_seconds, draining,
           rss_bytes, started_at, heartbeat_at, last_poll_at, last_done_at, stopped_at
    FROM pgjobs_worker ORDER BY (stopped_at IS NULL) DESC, heartbeat_at DESC, id DESC LIMIT %(most)s
) AS worker ON true"""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One process, as at ``clock``."""

    SERVING: ClassVar[frozenset[str]] = frozenset({"live", "late", "wedged"})

    clock: dt.datetime
    id: int
    name: str
    host: str
    pid: int
    queues: list[str]
    """Empty: all."""
    slots: int
    busy: int | None
    version: str
    code_version: str
    handlers: frozenset[str] | None
    """Job types and workflows it knows; None when it does not say."""
    heartbeat_seconds: float
    draining: bool
    rss_bytes: int | None
    started_at: dt.datetime
    heartbeat_at: dt.datetime
    last_poll_at: dt.datetime | None
    last_done_at: dt.datetime | None
    stopped_at: dt.datetime | None

    @property
    def heartbeat_age(self) -> dt.timedelta:
        """How long ago the process was last heard of."""
        return self.clock - self.heartbeat_at

    @property
    def poll_age(self) -> dt.timedelta | None:
        """How long ago its claim loop last turned, as far as it is known."""
        return self.clock - self.last_poll_at if self.last_poll_at else None

    @property
    def state(self) -> str:
        """ "stopped", "silent", "draining", "wedged", "late" or "live"."""
        beats = self.heartbeat_age.total_seconds() / self.heartbeat_seconds
        if self.stopped_at is not None:
            return "stopped"
        if beats > SILENT:
            return "silent"
        if self.draining:
            return "draining"
        if (
            self.poll_age is not None
            and self.poll_age.total_seconds() > get_settings().loop_stale_seconds() + self.heartbeat_seconds
        ):
            return "wedged"
        return "late" if beats > _LATE else "live"

    @property
    def is_serving(self) -> bool:
        """Whether it is there to claim. A wedged one is: that it does not is another problem."""
        return self.state in self.SERVING

    def serves(self, queue: str) -> bool:
        """Whether it claims from that queue."""
        return bool(self.slots) and (not self.queues or queue in self.queues)  # a runreaper has no slots


def read_workers(reader: Reader) -> tuple[dt.datetime, list[WorkerRow]]:
    """The database's clock, and the workers: those that have not stopped first, then the latest."""
    found = reader.ask(_WORKERS, most=MOST)
    clock = found[0][0]
    return clock, [_worker(*row) for row in found if row[1] is not None]


def _worker(clock: dt.datetime, *values: Any) -> WorkerRow:
    pk, name, host, pid, queues, slots, busy, version, code, handlers, beat, *rest = values
    queues, handlers = (json.loads(each) if isinstance(each, str) else each for each in (queues, handlers))
    named = [str(each) for each in queues] if isinstance(queues, list) else [str(queues)]
    known = frozenset(map(str, handlers)) if isinstance(handlers, list) else None
    beat = beat or get_settings().heartbeat_seconds
    return WorkerRow(clock, pk, name, host, pid, named, slots, busy, version, code, known, beat, *rest)


def serving(workers: Iterable[WorkerRow], queue: str) -> list[WorkerRow]:
    """Those that are there to claim from that queue."""
    return [worker for worker in workers if worker.is_serving and worker.serves(queue)]


def supervisors(workers: Iterable[WorkerRow]) -> int:
    """At least so many ``runworkers`` have these: each names its children by their number in it, with dots around."""
    numbers = Counter(parts[1] for worker in workers if len(parts := worker.name.rsplit(".", 2)) == 3)
    return max((count for number, count in numbers.items() if number.isdigit()), default=0)
