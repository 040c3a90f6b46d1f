"""Renew: the holder says that it lives, for all its leases in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgjobs.connections import rows
from pgjobs.leases.fence import GIVEN, as_given, by_key, held_rows
from pgjobs.leases.models import LeasedRow
from pgjobs.leases.states import Lease

# running -> running. Fence: id, status, token. Locks: skips a row that its own handler is just finishing, so
# that one slow ctx.finish() never holds up the renewal of the others. Only unindexed columns change: HOT.
_RENEW = """
WITH given AS MATERIALIZED (SELECT * FROM {given}),
mine AS MATERIALIZED ({mine}),
held AS MATERIALIZED ({held}),
renewed AS MATERIALIZED (
    UPDATE {table} AS leased
    SET heartbeat_at = clock_timestamp(),
        lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
    WHERE {by_key}
    RETURNING leased.id
)
SELECT mine.id, renewed.id IS NOT NULL FROM mine LEFT JOIN renewed USING (id)"""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer: what is still held, and what of it has a new expiry. The rest of the former was locked."""

    held: set[int]
    extended: set[int]


def renew(model: type[LeasedRow], leases: Sequence[Lease], *, lease_seconds: float, using: str) -> Renewal:
    """Extend ``leases``; every one that is not among the ``held`` of the answer is lost.

    A lease that has lapsed but that nobody has taken is extended too: the token decides, not the clock.
    """
    if not leases:
        return Renewal(set(), set())
    table = f'"{model._meta.db_table}"'
    sql = _RENEW.format(
        given=GIVEN,
        table=table,
        by_key=by_key("held"),
        mine=held_rows(table, locking="OFFSET 0"),
        held=held_rows(table, locking="FOR NO KEY UPDATE SKIP LOCKED"),
    )
    found = rows(using, sql, as_given(leases) | {"lease_seconds": lease_seconds})
    return Renewal({pk for pk, _ in found}, {pk for pk, extended in found if extended})
