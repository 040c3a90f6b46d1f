"""What an examination finds: each with its severity, its measure, and its cure."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from pgjobs.connections import rows


class Severity(StrEnum):
    """How bad it is."""

    CRITICAL = "critical"
    """Work stands still, or data is at risk."""
    WARNING = "warning"
    """It will hurt, or hurts already."""
    NOTE = "note"
    """Worth knowing."""


CRITICAL, WARNING, NOTE = Severity.CRITICAL, Severity.WARNING, Severity.NOTE

CODES: Mapping[str, str] = {
    "unapplied-migrations": "migrations of this code are not applied to the database",
    "missing-table": "a table of pgjobs is not there",
    "dead-rows": "many dead rows that vacuum has not removed",
    "table-bloat": "a table is far larger than its rows",
    "index-bloat": "an index is far larger than its entries",
    "autovacuum-off": "autovacuum does not work on the server, or on a table",
    "vacuum-lag": "no vacuum for long, though there is enough to do",
    "storage-parameters": "fillfactor or autovacuum settings of the migrations are missing",
    "missing-index": "an index of the models is not there",
    "invalid-index": "an index is not valid, so no plan uses it",
    "extra-index": "an index that pgjobs does not have costs every write, and is never read or prevents HOT updates",
    "old-snapshot": "a session holds the oldest snapshot: vacuum removes nothing that died since",
    "prepared-transaction": "a prepared transaction waits for its second phase and holds a snapshot",
    "replication-slot": "a replication slot holds back vacuum, or keeps WAL that nobody fetches",
    "standby-feedback": "a standby reports an old snapshot of its own",
    "hidden-sessions": "the role does not see what other roles' sessions do",
    "notify-queue": "the server's queue of notifications fills up",
    "server-setting": "a setting of the server, the database or the role will hurt",
    "read-only": "the database takes no writes",
    "connections": "connections are, or may become, too few",
    "debug": "DEBUG is on",
    "pooler": "a pooler is in between, and a setting does not suit it",
    "no-listener": "NOTIFY is on, but no worker listens",
    "no-trigger": "NOTIFY is on, but nothing sends it: the trigger on the table of jobs is missing or disabled",
    "silent-workers": "workers that have not said goodbye are silent",
    "hanging-worker": "a worker's heart beats, but its claim loop stands",
    "no-workers": "due work that no live worker serves",
    "unknown-types": "jobs wait for handlers that this code does not have",
    "unknown-workflows": "executions wait for workflows that this code does not have",
    "slow-turns": "a workflow holds a slot and comes to no durable call",
    "lapsed-leases": "leases have lapsed and nobody reaps them",
    "retention": "the rules for old jobs do not fit together, are behind, or there are none",
    "not-examined": "a part could not be looked at",
}
"""Every code that a finding can have, and what it stands for."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    code: str
    severity: Severity
    what: str
    measure: str
    """Since when, or how much."""
    cure: str
    statement: str = ""
    """What a session ran, shortened; it may hold what not everybody may read."""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise AssertionError(f"{self.code!r} is missing in CODES")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on something is worth a finding. Seconds, bytes, rows, shares of one."""

    snapshot_seconds: float = 60
    snapshot_critical_seconds: float = 3_600
    dead_rows: int = 10_000
    dead_share: float = 0.2
    bloat_bytes: int = 50_000_000
    bloat_factor: float = 3
    index_entry_bytes: int = 500
    vacuum_seconds: float = 6 * 3_600
    connection_share: float = 0.8
    slot_bytes: int = 1_000_000_000
    old_transactions: int = 1_000_000
    waiting_seconds: float = 60
    unpruned_rows: int = 1_000_000


_SERVER = """
SELECT current_database(), current_setting('server_version'), statement_timestamp(), pg_backend_pid(),
       quote_ident(current_user), pg_is_in_recovery(), pg_has_role('pg_read_all_stats', 'USAGE'),
       pg_notification_queue_usage()"""

_SETTINGS = "SELECT name, setting, reset_val FROM pg_settings"


@dataclass(frozen=True, slots=True)
class Server:
    """What the server says of itself and of this session."""

    database: str
    version: str
    at: dt.datetime
    pid: int
    """Of the session that answered."""
    role: str
    """Quoted where it must be."""
    in_recovery: bool
    sees_all: bool
    """Whether the role sees what other roles' sessions do."""
    notifications: float
    """Share of the queue of notifications that is in use."""


@dataclass(slots=True)
class Patient:
    """What probes look at. What several of them need is read once."""

    using: str
    thresholds: Thresholds
    _known: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def ask(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        return rows(self.using, sql, params)

    def once(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement that is always asked with the same parameters."""
        if sql not in self._known:
            self._known[sql] = self.ask(sql, **params)
        return self._known[sql]

    @property
    def server(self) -> Server:
        """The server, as it was at the first look."""
        return Server(*self.once(_SERVER)[0])

    @property
    def settings(self) -> dict[str, tuple[str, str]]:
        """By name what is in force here, and what a new session gets."""
        return {name: (setting, reset) for name, setting, reset in self.once(_SETTINGS)}


Probe = Callable[[Patient], Iterator[Finding]]


@dataclass(slots=True)
class Report:
    """All findings, the worst first."""

    database: str
    server: str
    at: dt.datetime
    findings: list[Finding] = field(default_factory=list)

    @property
    def counts(self) -> dict[Severity, int]:
        """Findings of each severity, none left out."""
        counted = Counter(finding.severity for finding in self.findings)
        return {severity: counted[severity] for severity in Severity}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": 1,
            "database": self.database,
            "server": self.server,
            "at": self.at.isoformat(),
            "counts": {severity.value: count for severity, count in self.counts.items()},
            "findings": [asdict(finding) for finding in self.findings],
        }


def span(seconds: float) -> str:
    """Hours, minutes and seconds, for people."""
    return str(dt.timedelta(seconds=int(seconds)))


def megabytes(size: float) -> str:
    """A size, for people."""
    return f"{size / 1_000_000:,.1f} MB"


def shortened(text: str | None, length: int = 160) -> str:
    """The beginning of a statement, on one line."""
    line = " ".join((text or "").split())
    return line if len(line) <= length else line[:length] + "…"
