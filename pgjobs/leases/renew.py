"""Renew: the holder says that it lives, for all its leases in one statement."""

from __future__ import annotations

from collections.abc import Sequence

from pgjobs.connections import rows
from pgjobs.leases.fence import GIVEN, held_rows
from pgjobs.leases.models import LeasedRow
from pgjobs.leases.states import Lease

# running -> running. Fence: id, status, token. Locks: skips a row that its own handler is just finishing, so
# that one slow ctx.finish() never holds up the renewal of the others. Only unindexed columns change: HOT.
_RENEW = """
WITH given AS MATERIALIZED (SELECT * FROM {given}),
mine AS MATERIALIZED ({mine}),
held AS MATERIALIZED ({held}),
renewed AS (
    UPDATE {table} AS leased
    SET heartbeat_at = clock_timestamp(),
        lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
    FROM held WHERE leased.id = held.id
)
SELECT id FROM mine"""


def renew(model: type[LeasedRow], leases: Sequence[Lease], *, lease_seconds: float, using: str) -> set[int]:
    """Extend ``leases`` and return the ids that are still held; every other one is lost.

    A lease that has lapsed but that nobody has taken is extended too: the token decides, not the clock.
    """
    if not leases:
        return set()
    table = f'"{model._meta.db_table}"'
    sql = _RENEW.format(
        given=GIVEN,
        table=table,
        mine=held_rows(table, locking="OFFSET 0"),
        held=held_rows(table, locking="FOR UPDATE SKIP LOCKED"),
    )
    params = {
        "ids": [lease.pk for lease in leases],
        "tokens": [lease.token for lease in leases],
        "lease_seconds": lease_seconds,
    }
    return {pk for (pk,) in rows(using, sql, params)}
