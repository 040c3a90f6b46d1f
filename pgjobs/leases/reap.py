"""Reap: take back the rows of dead workers, count the crash, and stop rows that have killed too many."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, transaction

from pgjobs import signals
from pgjobs.conf import get_settings
from pgjobs.connections import OUTAGE, retrying, rows
from pgjobs.leases.fence import LEASE_CLEARED, by_key, error_appended
from pgjobs.leases.models import LeasedRow
from pgjobs.leases.states import RUNNING

logger = logging.getLogger("pgjobs.leases")


@dataclass(slots=True)
class Reaped:
    """What one pass did: ids that wait for another try, ids whose crash budget is spent."""

    requeued: list[int] = field(default_factory=list)
    exhausted: list[int] = field(default_factory=list)
    counts: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    """By queue, kind, and whether the budget is spent."""

    def add(self, other: Reaped) -> None:
        """Take in what another pass did."""
        self.requeued += other.requeued
        self.exhausted += other.exhausted
        self.counts += other.counts

    def __len__(self) -> int:
        return len(self.requeued) + len(self.exhausted)


# running -> claimable (after a delay) or exhausted. Fence: status and, for lapsed rows, the expiry, both read
# under the row's lock, so a renewal or settlement that came first wins. Locks: in id order, skipping held rows.
# What happened is noted once for each worker and kind of work, however much it held.
_REAP = """
WITH lost AS MATERIALIZED (
    SELECT id, lease_owner FROM {table} WHERE status = '{running}' AND {which}
    ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
),
moved AS (
    UPDATE {table} AS leased
    SET status = CASE WHEN {spent} THEN '{exhausted}' ELSE '{claimable}' END,
        crash_count = leased.crash_count + 1,
        available_at = CASE WHEN {spent} THEN leased.available_at ELSE clock_timestamp() + make_interval(
            secs => LEAST(%(cap)s, %(delay)s * power(2, LEAST(leased.crash_count, 30))) * (0.9 + 0.2 * random())) END,
        completed_at = CASE WHEN {spent} AND {final} THEN clock_timestamp() END,
        last_error = {message},
        {reason} = CASE WHEN {spent} THEN 'crash budget spent: ' || {message} ELSE leased.{reason} END,
        errors = {errors},{lost}
        {cleared}
    WHERE {by_key}
    RETURNING leased.id, leased.status, leased.queue, leased.{kind}{mark}
),
noted AS (
    INSERT INTO pgjobs_activity (kind, queue, {column}, target_kind, target_id, details)
    SELECT 'lease_reclaimed', moved.queue, moved.{kind}, 'worker', lost.lease_owner, jsonb_build_object(
        'label', '{label}', 'ids', to_jsonb((array_agg(id ORDER BY id))[1:5]), 'count', count(*),
        'spent', count(*) FILTER (WHERE moved.status = '{exhausted}'))
    FROM moved JOIN lost USING (id) GROUP BY 2, 3, 5 ORDER BY 5, 2, 3
){met}
SELECT id, status, queue, {kind} FROM moved"""

# A cause is as old as the first job that it has ended, whatever becomes of that job. Lock order: rows, then causes.
_MET = """,
met AS (
    INSERT INTO pgjobs_cause AS cause (fingerprint, ended_at)
    SELECT DISTINCT fingerprint, statement_timestamp() FROM moved WHERE status = '{exhausted}'
    ORDER BY fingerprint
    ON CONFLICT (fingerprint) DO UPDATE
    SET seen_at = statement_timestamp(), ended_at = COALESCE(cause.ended_at, EXCLUDED.ended_at)
)"""

# As a rule there is nothing to take back: asked without a transaction, it is one statement instead of three.
_LAPSED = "lease_expires_at < clock_timestamp()"
_ANY = "SELECT 1 FROM {table} WHERE status = '{running}' AND {which} LIMIT 1"

# Of the row as it was: none of this is what the statement makes of it.
_MESSAGE = """format(
    'worker %%s died or went silent during attempt %%s; its last heartbeat was at %%s (crash %%s of %%s)',
    leased.lease_owner, leased.attempt_count, leased.heartbeat_at, leased.crash_count + 1, leased.max_crashes)"""
_SPENT = "leased.crash_count + 1 >= leased.max_crashes"
_LOST = """
    error_class = '{lost_class}', fingerprint = {lost_fingerprint},"""
_ENTRY = f"""jsonb_build_object('attempt', leased.attempt_count, 'kind', 'lost', 'message', {_MESSAGE},
    'worker', leased.lease_owner, 'heartbeat_at', leased.heartbeat_at, 'at', clock_timestamp())"""


OnExhausted = Callable[[Sequence[int], str], None]
"""Called with ids and alias in the transaction that has spent their crash budget."""


def reap_lapsed(
    model: type[LeasedRow], *, using: str, limit: int | None = None, on_exhausted: OnExhausted | None = None
) -> Reaped:
    """Take back up to ``limit`` rows whose lease has ended by the database's clock. No kind of row is exempt."""
    return _reap(model, _LAPSED, _params(limit), using, on_exhausted)


def lapse_sql(model: type[LeasedRow]) -> str:
    """An SQL expression: seconds until :func:`reap_lapsed` may find something, below 0 when it would, or null.

    A difference of seconds, not of times: somebody may have ended a lease by hand at ``-infinity``.
    """
    return (
        "(SELECT date_part('epoch', min(lease_expires_at)) - date_part('epoch', clock_timestamp()) "  # noqa: S608
        f"FROM {_table(model)} WHERE status = '{RUNNING}')"
    )


def reap_owner(
    model: type[LeasedRow],
    owner: str,
    *,
    only: Sequence[int] | None = None,
    using: str,
    on_exhausted: OnExhausted | None = None,
) -> Reaped:
    """Take back what ``owner`` holds, lapsed or not: for a process that is known to have died.

    ``only`` names the ids to be charged, where it is known which had begun; without it all are.
    """
    params = {**_params(None), "owner": owner, "only": None if only is None else list(only)}
    which = "lease_owner = %(owner)s AND (%(only)s::bigint[] IS NULL OR id = ANY(%(only)s::bigint[]))"
    total = Reaped()
    while batch := _reap(model, which, params, using, on_exhausted):
        total.add(batch)
    return total


def _params(limit: int | None) -> dict[str, Any]:
    settings = get_settings()
    return {
        "limit": limit or settings.reap_batch,
        "delay": settings.crash_delay_seconds,
        "cap": settings.crash_delay_cap_seconds,
        "max_errors": settings.max_errors,
    }


def _reap(
    model: type[LeasedRow], which: str, params: dict[str, Any], using: str, on_exhausted: OnExhausted | None
) -> Reaped:
    """One batch: in one transaction, or row by row when one of its rows cannot be moved."""
    if not rows(using, _ANY.format(table=_table(model), running=RUNNING, which=which), params):
        return Reaped()
    try:
        reaped = retrying(using, lambda: _reap_batch(model, which, params, using, on_exhausted))
    except OUTAGE:
        raise
    except DatabaseError:
        logger.exception("taking back %s rows one by one", model.LEASE.label)
        reaped = _reap_singly(model, which, params, using, on_exhausted)
    if reaped:
        signals.rows_reaped.send_robust(
            None, label=model.LEASE.label, requeued=reaped.requeued, exhausted=reaped.exhausted
        )
    return reaped


def _reap_batch(
    model: type[LeasedRow], which: str, params: dict[str, Any], using: str, on_exhausted: OnExhausted | None
) -> Reaped:
    reaped = Reaped()
    with transaction.atomic(using=using):
        for pk, status, queue, kind in rows(using, _sql(model, which), params):
            spent = status == model.LEASE.exhausted
            (reaped.exhausted if spent else reaped.requeued).append(pk)
            reaped.counts[queue, kind, spent] += 1
        if reaped.exhausted and on_exhausted is not None:
            on_exhausted(sorted(reaped.exhausted), using)
    return reaped


def _reap_singly(
    model: type[LeasedRow], which: str, params: dict[str, Any], using: str, on_exhausted: OnExhausted | None
) -> Reaped:
    listing = (
        f"SELECT id FROM {_table(model)} WHERE status = '{RUNNING}' AND {which} ORDER BY id LIMIT %(limit)s"  # noqa: S608
    )
    total = Reaped()
    for (pk,) in rows(using, listing, params):
        one = {**params, "pk": pk}
        try:
            reaped = _reap_batch(model, f"id = %(pk)s AND {which}", one, using, on_exhausted)
        except OUTAGE:
            raise
        except DatabaseError:
            logger.exception("%s %s cannot be taken back; the others are", model.LEASE.label, pk)
        else:
            total.add(reaped)
    return total


def _entry(model: type[LeasedRow]) -> str:
    fingerprint = model.LEASE.lost_fingerprint
    return f"{_ENTRY} || jsonb_build_object('fingerprint', {fingerprint})" if fingerprint else _ENTRY


def _table(model: type[LeasedRow]) -> str:
    return f'"{model._meta.db_table}"'


def _sql(model: type[LeasedRow], which: str) -> str:
    rules = model.LEASE
    return _REAP.format(
        table=_table(model),
        running=RUNNING,
        which=which,
        spent=_SPENT,
        kind=rules.kind_column,
        column="workflow" if rules.kind_column == "workflow_name" else rules.kind_column,
        label=rules.label,
        message=_MESSAGE,
        exhausted=rules.exhausted,
        claimable=rules.claimable,
        final="true" if rules.exhausted_is_final else "false",
        reason=rules.exhausted_reason_column,
        errors=error_appended(_entry(model)),
        lost=_LOST.format(lost_class=rules.lost_class, lost_fingerprint=rules.lost_fingerprint)
        if rules.lost_class
        else "",
        met=_MET.format(exhausted=rules.exhausted) if rules.lost_fingerprint else "",
        mark=", leased.fingerprint" if rules.lost_fingerprint else "",
        cleared=LEASE_CLEARED,
        by_key=by_key("lost"),
    )
