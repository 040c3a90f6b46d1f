"""The whole at one look: verdict, queues, workers and totals, from one set of reads."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, fields
from typing import Any

from django.db import Error

from pgjobs.conf import get_settings
from pgjobs.health.examination import judge, told
from pgjobs.health.facts import Facts
from pgjobs.health.queues import QueueRow, queue_rows
from pgjobs.health.reading import Reader
from pgjobs.health.verdict import Verdict
from pgjobs.health.workers import WorkerRow
from pgjobs.queue.models import QueuePause
from pgjobs.queue.stats import COUNT_LIMIT
from pgjobs.redaction import redacted_text


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums for the head of a page. Numbers one above ``COUNT_LIMIT`` mean "and more"."""

    ready: int
    later: int
    next_at: dt.datetime | None
    oldest: dt.timedelta | None
    """How long the oldest due row of any queue has waited."""
    running: int
    capacity: int
    done_per_minute: float
    failed_share: float | None
    """Of the attempts of the last minutes; None when there were none, or not all that ended badly are counted."""
    uncounted: int
    """Jobs that ended badly in those minutes and are in no figure, such as those that a reaper buried."""
    dead: int
    """Dead and failed jobs that nobody has discarded; one above ``DEAD_ALERT`` means "and more"."""
    dead_last_hour: int
    """One above ``LATELY_LIMIT`` means "and more"."""
    approvals: int
    oldest_approval_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Overview:
    """What the overview page and ``pgjobs_status`` show."""

    verdict: Verdict
    queues: list[QueueRow] | None
    """None: could not be read."""
    workers: list[WorkerRow] | None
    totals: Totals | None
    pauses: list[QueuePause]
    """In force, as far as they could be read."""
    missing: dict[str, str]
    """Part that could not be read -> why."""
    known_causes: list[str] = field(default_factory=list)
    """Fingerprints that somebody has acknowledged or muted."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.verdict.as_dict(),
            "queues": None if self.queues is None else [_plain(row) for row in self.queues],
            "workers": None if self.workers is None else [_worker(row) for row in self.workers],
            "totals": None if self.totals is None else _plain(self.totals),
            "missing": self.missing,
        }


def overview(*, using: str | None = None) -> Overview:
    """Everything that can be read; what cannot is None and named, never empty."""
    missing: dict[str, str] = {}
    workers: list[WorkerRow] | None = None
    queues: list[QueueRow] | None = None
    totals: Totals | None = None
    known: list[str] = []
    pauses: list[QueuePause] = []
    with Reader(using or get_settings().database) as reader:
        facts = Facts(reader, far=True)
        verdict = judge(facts)
        try:
            workers = facts.workers
        except Error as error:
            missing["workers"] = told(error)
        try:
            queues = queue_rows(facts, verdict.problems)
            totals = _totals(facts, queues)
        except Error as error:
            missing["totals" if queues is not None else "queues"] = told(error)
        try:
            pauses = facts.pauses
        except Error as error:
            missing["pauses"] = told(error)
        try:
            known = facts.known_causes
        except Error as error:
            missing["errors"] = told(error)
    return Overview(verdict, queues, workers, totals, pauses, missing, known)


def _plain(row: QueueRow | Totals) -> dict[str, Any]:
    """Times in ISO 8601, spans in seconds; a pause by its parts."""
    told = {field.name: _value(getattr(row, field.name)) for field in fields(row)}
    pause = getattr(row, "pause", None)
    if pause is not None:
        told["pause"] = {
            "by": pause.by,
            "reason": redacted_text(pause.reason),
            "since": _value(pause.since),
            "until": _value(pause.until),
        }
    return told


def _value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, dt.timedelta) else value


def _worker(row: WorkerRow) -> dict[str, Any]:
    names = ("name", "host", "pid", "queues", "slots", "busy", "version", "code_version", "rss_bytes")
    times = ("started_at", "heartbeat_at", "last_poll_at", "last_done_at", "stopped_at")
    return {
        "state": row.state,
        **{name: getattr(row, name) for name in names},
        **{name: _value(getattr(row, name)) for name in times},
    }


def _totals(facts: Facts, queues: list[QueueRow]) -> Totals:
    rates = facts.rates.values()
    attempts = sum(rate.attempts for rate in rates)
    bad = sum(rate.failed + rate.dead for rate in rates)
    uncounted = max(facts.dead.last_minutes - bad, 0)
    return Totals(
        ready=min(sum(row.ready for row in queues), COUNT_LIMIT + 1),
        later=min(sum(row.later for row in queues), COUNT_LIMIT + 1),
        next_at=min((row.next_at for row in queues if row.next_at), default=None),
        oldest=max((row.oldest for row in queues if row.oldest), default=None),
        running=sum(held.running for held in facts.held),
        capacity=sum(worker.slots for worker in facts.workers if worker.is_serving),
        done_per_minute=sum(rate.done_per_minute for rate in rates),
        failed_share=None if uncounted or not attempts else 1 - sum(rate.done for rate in rates) / attempts,
        uncounted=uncounted,
        dead=facts.dead.total,
        dead_last_hour=facts.dead.last_hour,
        approvals=facts.workflows.approvals,
        oldest_approval_at=facts.workflows.oldest_approval_at,
    )
