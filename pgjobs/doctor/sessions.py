"""Who holds back vacuum: sessions, prepared transactions, slots and standbys with old snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from pgjobs.doctor.findings import (
    CRITICAL,
    NOTE,
    WARNING,
    Finding,
    Patient,
    Severity,
    megabytes,
    shortened,
    span,
)

_OLDEST = """
SELECT pid, usename::text, application_name, COALESCE(host(client_addr), 'a local socket'), state, query,
       extract(epoch FROM clock_timestamp() - xact_start)::float8,
       age(COALESCE(backend_xmin, backend_xid)), count(*) OVER ()
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
ORDER BY age(COALESCE(backend_xmin, backend_xid)) DESC, xact_start, pid LIMIT 1"""

_PREPARED = """
SELECT gid, owner::text, extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 5"""

_SLOTS = """
SELECT slot_name::text, slot_type, active, GREATEST(age(xmin), age(catalog_xmin)),
       COALESCE(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                                     ELSE pg_current_wal_lsn() END, restart_lsn), 0)::float8, wal_status
FROM pg_replication_slots ORDER BY slot_name LIMIT 20"""

_STANDBYS = """
SELECT application_name, COALESCE(host(client_addr), 'a local socket'), age(backend_xmin)
FROM pg_stat_replication WHERE backend_xmin IS NOT NULL ORDER BY age(backend_xmin) DESC LIMIT 1"""


def probe_snapshots(patient: Patient) -> Iterator[Finding]:
    """The session that holds the oldest snapshot of this database."""
    found = patient.ask(_OLDEST)
    if not found:
        return
    pid, user, application, host, state, query, seconds, transactions, holders = found[0]
    severity = _by_age(patient, seconds or 0)
    if severity is None:
        return
    yield Finding(
        "old-snapshot",
        severity,
        f"Session {pid} ({user}, application {application or 'unnamed'!r}, from {host}) is {state} and holds the "
        f"oldest snapshot.",
        f"for {span(seconds or 0)}, {transactions:,} transactions; {holders} sessions hold one",
        f"Have it commit, or SELECT pg_terminate_backend({pid}); then keep transactions short there, and set "
        f"idle_in_transaction_session_timeout for its role. Long reports belong on a standby.",
        shortened(query) or "(the role may not see it)",
    )


def probe_prepared(patient: Patient) -> Iterator[Finding]:
    """Two-phase commits that were begun and never ended."""
    for gid, owner, seconds, transactions in patient.ask(_PREPARED):
        severity = _by_age(patient, seconds)
        if severity is not None:
            yield Finding(
                "prepared-transaction",
                severity,
                f"The prepared transaction {gid!r} of {owner} waits to be committed or rolled back.",
                f"for {span(seconds)}, {transactions:,} transactions",
                f"Ask its transaction manager; else ROLLBACK PREPARED '{gid}'; in this database.",
            )


def probe_slots(patient: Patient) -> Iterator[Finding]:
    """Slots that nobody uses, and slots with an old horizon."""
    for name, kind, active, transactions, behind, wal_status in patient.ask(_SLOTS):
        old = (transactions or 0) > patient.thresholds.old_transactions
        much = behind > patient.thresholds.slot_bytes
        if active and not old and not much:
            continue
        state = "is in use" if active else "is used by nobody"
        yield Finding(
            "replication-slot",
            CRITICAL if (old or much) and not active else WARNING,
            f"The {kind} replication slot {name!r} {state} and keeps what its consumer has not fetched.",
            f"{megabytes(behind)} of WAL ({wal_status or 'none kept'}), {transactions or 0:,} transactions",
            f"Start its consumer, or SELECT pg_drop_replication_slot('{name}'); and set max_slot_wal_keep_size.",
        )


def probe_standbys(patient: Patient) -> Iterator[Finding]:
    """hot_standby_feedback carries a standby's oldest snapshot to the primary."""
    for application, host, transactions in patient.ask(_STANDBYS):
        if transactions > patient.thresholds.old_transactions:
            yield Finding(
                "standby-feedback",
                WARNING,
                f"The standby {application!r} at {host} reports a snapshot that is old.",
                f"{transactions:,} transactions",
                "End the long statement there, or turn hot_standby_feedback off on that standby.",
            )


def probe_visibility(patient: Patient) -> Iterator[Finding]:
    """Without the right, sessions of other roles look as if they held nothing."""
    if not patient.server.sees_all:
        yield Finding(
            "hidden-sessions",
            NOTE,
            "This role does not see the statements and snapshots of other roles' sessions.",
            "findings about sessions may be missing",
            "GRANT pg_monitor TO the role that runs pgjobs_doctor.",
        )


def probe_notifications(patient: Patient) -> Iterator[Finding]:
    """A listener that sits in a transaction keeps the queue of all notifications; once full, NOTIFY fails."""
    usage = patient.server.notifications
    if usage > 0.3:
        yield Finding(
            "notify-queue",
            CRITICAL if usage > 0.8 else WARNING,
            "The server's queue of notifications fills up: a session that LISTENs sits in a long transaction.",
            f"{usage:.0%} full",
            "End that session (see old-snapshot; the server's log names it); PGJOBS['NOTIFY'] = False helps meanwhile.",
        )


def _by_age(patient: Patient, seconds: float) -> Severity | None:
    limits = patient.thresholds
    if seconds >= limits.snapshot_critical_seconds:
        return CRITICAL
    if seconds >= limits.snapshot_seconds:
        return WARNING
    return NOTE if seconds >= limits.snapshot_seconds / 10 else None
