"""Release: a living process hands rows back in order; the attempt is not counted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from pgjobs.connections import rows
from pgjobs.leases.fence import GIVEN, LEASE_CLEARED, as_given, by_key, held_rows
from pgjobs.leases.models import LeasedRow
from pgjobs.leases.states import RUNNING, Lease

# running -> claimable. Fence: id, status, token. Locks: in id order, skipping: a row that its own handler holds in
# ctx.finish() cannot be handed back before that session ends, and nobody may stand still for it.
_RELEASE = """
WITH given AS MATERIALIZED (SELECT * FROM {given}),
held AS MATERIALIZED ({held})
UPDATE {table} AS leased
SET status = '{claimable}', attempt_count = GREATEST(leased.attempt_count - 1, 0), {cleared}
WHERE {by_key}
RETURNING leased.id"""

# running -> claimable. Fence: a token or an owner that only the caller has known. Locks: in id order, skipping.
_RELEASE_ALL = """
WITH held AS MATERIALIZED (
    SELECT id FROM {table} WHERE status = '{running}' AND {whose}
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {table} AS leased
SET status = '{claimable}', attempt_count = GREATEST(leased.attempt_count - 1, 0), {cleared}
WHERE {by_key}
RETURNING leased.id"""


def release(model: type[LeasedRow], leases: Sequence[Lease], *, using: str) -> set[int]:
    """Hand ``leases`` back unspent, claimable at once, and return the ids that moved. Lost ones are left alone."""
    if not leases:
        return set()
    table = f'"{model._meta.db_table}"'
    sql = _RELEASE.format(
        given=GIVEN,
        table=table,
        held=held_rows(table, locking="FOR NO KEY UPDATE SKIP LOCKED"),
        claimable=model.LEASE.claimable,
        cleared=LEASE_CLEARED,
        by_key=by_key("held"),
    )
    return {pk for (pk,) in rows(using, sql, as_given(leases))}


def release_claim(model: type[LeasedRow], token: uuid.UUID, *, using: str) -> set[int]:
    """Hand back whatever was claimed under ``token``: for a claim whose reply never arrived."""
    return _release_all(model, "lease_token = %(whose)s::uuid", {"whose": str(token)}, using)


def release_owner(model: type[LeasedRow], owner: str, *, spare: Sequence[int] = (), using: str) -> set[int]:
    """Hand back what ``owner`` still holds and nobody has locked, but for the ids to ``spare``.

    For a process that has ended: either all of it (it was told to stop), or what it had not begun.
    """
    params = {"whose": owner, "spare": list(spare)}
    return _release_all(model, "lease_owner = %(whose)s AND id <> ALL(%(spare)s::bigint[])", params, using)


def still_owned(model: type[LeasedRow], owner: str, *, using: str) -> bool:
    """Whether ``owner`` still holds anything: rows that the last session of a dead process has locked."""
    return model._base_manager.using(using).filter(status=RUNNING, lease_owner=owner).exists()


def _release_all(model: type[LeasedRow], condition: str, params: dict[str, Any], using: str) -> set[int]:
    sql = _RELEASE_ALL.format(
        table=f'"{model._meta.db_table}"',
        running=RUNNING,
        whose=condition,
        claimable=model.LEASE.claimable,
        cleared=LEASE_CLEARED,
        by_key=by_key("held"),
    )
    return {pk for (pk,) in rows(using, sql, params)}
