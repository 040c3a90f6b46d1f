"""The fence: whatever takes a row out of ``running`` names id, status and token, and clears the lease from here."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from django.db import Error, connections, transaction
from django.db.models.expressions import RawSQL

from pgjobs.backoff import Backoff
from pgjobs.connections import drop, is_outage
from pgjobs.exceptions import LeaseLost
from pgjobs.leases.models import LeasedRow
from pgjobs.leases.states import RUNNING, Lease

_RECONNECT = Backoff(base=0.2, cap=2, jitter=0.3)

LEASE_CLEARED = "lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL"
"""SET list of every move out of ``running``."""

RUNNING_BY_KEY = f"COALESCE(leased.status, '') = '{RUNNING}'"
"""``status = 'running'`` in words that do not lead the planner to the partial index on running rows.

It expects one row there and would read them all, dead entries included, where the ids are at hand: measured
with 800 running rows, 2.7 ms of a 5.3 ms settlement of 200.
"""

GIVEN = "unnest(%(ids)s::bigint[], %(tokens)s::uuid[]) AS given(id, token)"
"""The leases a statement is about, as rows. Their parameters come from :func:`as_given`."""


def as_given(leases: Iterable[Lease]) -> dict[str, object]:
    """The parameters of :data:`GIVEN`, as array literals.

    Lists of ids and UUIDs cost psycopg 2 microseconds a lease, these a quarter; the leases of one claim share a token.
    """
    ids, tokens = [], []
    texts: dict[uuid.UUID, str] = {}
    for pk, token, *_ in leases:
        ids.append(str(pk))
        tokens.append(texts.get(token) or texts.setdefault(token, token.hex))
    return {"ids": f"{{{','.join(ids)}}}", "tokens": f"{{{','.join(tokens)}}}"}


def by_key(cte: str) -> str:
    """``leased.id`` is one of the ids in ``cte``, in words that lead every plan through the primary key.

    A join alone leaves the planner the choice, and for a hundred ids of a table of some hundred pages it reads them
    all, or walks the primary key from its start: measured, 3 ms of a claim of 160 rows from a table of 20,000.
    """
    return f"leased.id = ANY(ARRAY(SELECT id FROM {cte}))"  # noqa: S608 - a name of ours


def held_rows(table: str, *, locking: str = "FOR NO KEY UPDATE") -> str:
    """SELECT of the ids in ``given`` that are still held under the given token, locked in id order.

    Row by row through the primary key: a locking subquery is never turned into a join, so the plan does not
    depend on what the planner believes of a table that changes faster than its statistics.
    Lock order: whoever locks several rows of a leased table waits in the order of id, or skips.
    """
    return (
        f"SELECT held.id FROM (SELECT * FROM given ORDER BY id) AS asked CROSS JOIN LATERAL ("  # noqa: S608
        f"SELECT leased.id FROM {table} AS leased WHERE leased.id = asked.id "
        f"AND {RUNNING_BY_KEY} AND leased.lease_token = asked.token {locking}) AS held"
    )


def error_appended(entry: str, table: str = "leased") -> str:
    """SQL for ``errors`` with ``entry`` (a jsonb expression) at its end, the oldest dropped beyond the limit.

    A history that somebody edited into something else than a list starts anew rather than blocking the row.
    """
    errors = f"{table}.errors"
    return (
        f"CASE WHEN jsonb_typeof({errors}) <> 'array' THEN jsonb_build_array({entry}) "
        f"WHEN jsonb_array_length({errors}) >= %(max_errors)s THEN ({errors} - 0) || jsonb_build_array({entry}) "
        f"ELSE {errors} || jsonb_build_array({entry}) END"
    )


def hold(model: type[LeasedRow], lease: Lease, *, using: str) -> str:
    """Lock the row for the rest of the caller's transaction; while it lasts nobody can take the lease away.

    Returns the number of the transaction. Raises :class:`LeaseLost` when the row no longer carries the token.
    """
    rows = model._base_manager.using(using).select_for_update(no_key=True)
    held = rows.filter(pk=lease.pk, status=RUNNING, lease_token=lease.token)
    number: str | None = held.values_list(RawSQL("pg_current_xact_id()::text", ()), flat=True).first()
    if number is None:
        raise LeaseLost(lease.label, lease.pk)
    return number


def hold_in(
    opened: ExitStack,
    model: type[LeasedRow],
    lease: Lease,
    *,
    using: str,
    keep_trying: Callable[[], bool] = lambda: False,
) -> str:
    """Open a transaction on this thread's connection, to be ended by ``opened``, and :func:`hold` the row in it.

    Nothing has been done in it yet: so when an outage has ended the connection while its owner computed, a new one
    is taken, and an outage that lasts is waited out for as long as ``keep_trying`` says.
    """
    failures = 0
    while True:
        stale = connections[using].connection is not None
        try:
            with ExitStack() as trial:
                trial.enter_context(transaction.atomic(using=using, durable=True))
                number = hold(model, lease, using=using)
                opened.push(trial.pop_all())
                return number
        except Error as error:
            if not is_outage(error):
                raise
            drop(using)
            if stale:
                continue
            if not keep_trying():
                raise
            failures += 1
            threading.Event().wait(_RECONNECT.delay(failures))


def leave(model: type[LeasedRow], lease: Lease, *, to: str, using: str, **columns: Any) -> None:
    """Move one held row out of ``running``, with ``columns`` set in the same statement.

    Raises :class:`LeaseLost` when no row moved.
    """
    held = model._base_manager.using(using).filter(pk=lease.pk, status=RUNNING, lease_token=lease.token)
    if not held.update(status=to, lease_owner=None, lease_token=None, lease_expires_at=None, **columns):
        raise LeaseLost(lease.label, lease.pk)


def as_json(text: str | None) -> RawSQL | None:
    """JSON text as a value for :func:`leave`, without parsing it on the way."""
    return None if text is None else RawSQL("%s::jsonb", (text,))
