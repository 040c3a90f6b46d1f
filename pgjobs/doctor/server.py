"""Settings of the server, the database and the role that will hurt, and connections that may run out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db import connections

from pgjobs.doctor.findings import CRITICAL, NOTE, WARNING, Finding, Patient, Severity
from pgjobs.doctor.project import behind_pooler

_CAPACITY = """
SELECT current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int
         - COALESCE(current_setting('reserved_connections', true)::int, 0),
       (SELECT CASE WHEN datconnlimit >= 0 THEN datconnlimit END FROM pg_database WHERE datname = current_database()),
       (SELECT CASE WHEN rolconnlimit >= 0 THEN rolconnlimit END FROM pg_roles WHERE rolname = current_user),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'),
       (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND backend_type = 'client backend'),
       live.workers, live.demand
FROM (SELECT count(*) AS workers, COALESCE(sum(slots + 5), 0)::int AS demand FROM pgjobs_worker
      WHERE stopped_at IS NULL AND heartbeat_at > clock_timestamp() - interval '5 minutes') AS live"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One setting: when it hurts, how much, why, and the cure."""

    name: str
    hurts: Callable[[str], bool]
    severity: Severity
    why: str
    cure: str


def _is(*values: str) -> Callable[[str], bool]:
    return lambda value: value.lower() in values


def _set_below(limit: int) -> Callable[[str], bool]:
    """Of a time in milliseconds, where 0 means never."""
    return lambda value: 0 < int(value) < limit


_ROLE = "ALTER ROLE {{role}} SET {name} = {value}; then start the workers anew."
_CONFIG = "ALTER SYSTEM SET {name} = {value}; SELECT pg_reload_conf();"

RULES = (
    Rule(
        "fsync",
        _is("off"),
        CRITICAL,
        "a crash of the machine can destroy the database",
        _CONFIG.format(name="fsync", value="on"),
    ),
    Rule(
        "full_page_writes",
        _is("off"),
        CRITICAL,
        "a crash of the machine can leave torn pages",
        _CONFIG.format(name="full_page_writes", value="on"),
    ),
    Rule(
        "synchronous_commit",
        _is("off"),
        WARNING,
        "jobs whose enqueue was confirmed, and results, can vanish in a crash of the server",
        _ROLE.format(name="synchronous_commit", value="on"),
    ),
    Rule(
        "autovacuum",
        _is("off"),
        CRITICAL,
        "dead rows of every claim and settlement stay for ever",
        _CONFIG.format(name="autovacuum", value="on"),
    ),
    Rule(
        "track_counts",
        _is("off"),
        CRITICAL,
        "autovacuum does not learn where it is needed",
        _CONFIG.format(name="track_counts", value="on"),
    ),
    Rule(
        "default_transaction_isolation",
        lambda value: value != "read committed",
        WARNING,
        "claims and settlements meet serialization failures and are repeated",
        _ROLE.format(name="default_transaction_isolation", value="'read committed'"),
    ),
    Rule(
        "statement_timeout",
        _set_below(30_000),
        WARNING,
        "it also ends the statements of workers, such as a claim behind a slow checkpoint, and of handlers",
        _ROLE.format(name="statement_timeout", value="0"),
    ),
    Rule(
        "transaction_timeout",
        _set_below(30_000),
        WARNING,
        "it also ends the transactions of workers and handlers",
        _ROLE.format(name="transaction_timeout", value="0"),
    ),
    Rule(
        "lock_timeout",
        _set_below(1_000),
        WARNING,
        "a settlement that waits for a row for a moment fails and is repeated",
        _ROLE.format(name="lock_timeout", value="0"),
    ),
    Rule(
        "idle_session_timeout",
        _set_below(120_000),
        WARNING,
        "it cuts the connections that idle workers keep open, the listening one among them",
        _ROLE.format(name="idle_session_timeout", value="0"),
    ),
    Rule(
        "idle_in_transaction_session_timeout",
        _set_below(10_000),
        WARNING,
        "a handler that computes for that long inside atomic() loses its connection",
        _ROLE.format(name="idle_in_transaction_session_timeout", value="'5min'"),
    ),
    Rule(
        "idle_in_transaction_session_timeout",
        _is("0"),
        NOTE,
        "nothing ends a session that forgot its transaction, and it holds back vacuum for as long",
        _ROLE.format(name="idle_in_transaction_session_timeout", value="'5min'"),
    ),
)


def probe_settings(patient: Patient) -> Iterator[Finding]:
    """Each rule, by the value that a new session gets."""
    values = {name: reset for name, (_, reset) in patient.settings.items()}
    for rule in RULES:
        if rule.name in values and rule.hurts(values[rule.name]):
            value = values[rule.name]
            what = f"{rule.name} is {value}: {rule.why}."
            cure = rule.cure.format(role=patient.server.role)
            yield Finding("server-setting", rule.severity, what, f"{rule.name} = {value}", cure)
    level = getattr(connections[patient.using], "isolation_level", None)
    if level is not None and level.name != "READ_COMMITTED":
        yield Finding(
            "server-setting",
            WARNING,
            f"OPTIONS['isolation_level'] is {level.name}: claims and settlements meet serialization failures.",
            f"isolation_level = {level.name}",
            f"Leave isolation_level out of DATABASES[{patient.using!r}]['OPTIONS'].",
        )


def probe_writable(patient: Patient) -> Iterator[Finding]:
    """A standby, or a database or role that was made read-only."""
    standby = patient.server.in_recovery
    if standby or patient.settings["default_transaction_read_only"][1] == "on":
        why = "is a standby" if standby else "is read-only (default_transaction_read_only)"
        cure = (
            "Point PGJOBS['DATABASE'] at the primary."
            if standby
            else "RESET it for the database and the role."
        )
        yield Finding(
            "read-only",
            CRITICAL,
            f"The database of alias {patient.using!r} {why}.",
            "nothing can be claimed",
            cure,
        )


def probe_connections(patient: Patient) -> Iterator[Finding]:
    """What is in use, and what the live workers may come to need."""
    ((*row, workers, demand),) = patient.ask(_CAPACITY)
    limits = [
        (limit, used, name)
        for limit, used, name in zip(
            row[:3], row[3:], ("max_connections", "the database's limit", "the role's limit"), strict=True
        )
        if limit is not None
    ]
    for limit, used, name in limits:
        if used >= patient.thresholds.connection_share * limit:
            yield Finding(
                "connections",
                CRITICAL if used >= 0.97 * limit else WARNING,
                f"{used} of {limit} connections are in use ({name}, without what is reserved).",
                f"{used / max(limit, 1):.0%}",
                "Lower --processes or --concurrency, put a pooler in between, or raise the limit.",
            )
    lowest = min(limit for limit, _, _ in limits)
    if demand > lowest and not behind_pooler(patient):
        yield Finding(
            "connections",
            WARNING,
            f"{workers} live workers may need up to {demand} connections (5 each, one per slot); there are {lowest}.",
            f"{demand} of {lowest}",
            "Lower --processes or --concurrency, put a pooler in between, or raise the limit.",
        )
