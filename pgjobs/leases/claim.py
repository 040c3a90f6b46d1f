"""Claim: due rows of known kinds, best first, become this owner's in one short statement.

The heart is a queryset with ``select_for_update(skip_locked=True)``; around it a walk from lane to lane, so that
rows of other queues and future rows at a better priority are stepped over by one index probe each.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NotRequired, TypedDict

from django.db import transaction

from pgjobs.connections import rows
from pgjobs.leases.fence import by_key
from pgjobs.leases.lanes import KNOWN_LANES, Position, all_lanes, literally, not_paused, table_of
from pgjobs.leases.models import LeasedRow
from pgjobs.leases.states import RUNNING, Lease

# Priorities are pulled one after another and only until the limit is met. Within one priority the lanes of
# several queues are merged by available_at and id; rows locked there beyond the limit are free at commit.
_DUE = """
WITH RECURSIVE lanes{columns} AS ({lanes}),
levels AS (SELECT DISTINCT priority FROM lanes WHERE priority IS NOT NULL ORDER BY priority),
due AS MATERIALIZED (
    SELECT best.id FROM levels CROSS JOIN LATERAL (
        SELECT picked.id, picked.available_at FROM lanes AS lane CROSS JOIN LATERAL ({picked}) AS picked
        WHERE lane.priority = levels.priority AND {open}
        ORDER BY picked.available_at, picked.id LIMIT %(limit)s
    ) AS best LIMIT %(limit)s
)"""

_DUE_SUSPECTS = """
WITH due AS MATERIALIZED (SELECT picked.id FROM ({picked}) AS picked)"""

# pending -> running. Fence: none to check, a fresh one is written. Locks: skips what others hold.
_CLAIM = """{due}
UPDATE {table} AS leased
SET status = '{running}', attempt_count = leased.attempt_count + 1, lease_owner = %(owner)s,
    lease_token = %(token)s::uuid, heartbeat_at = clock_timestamp(), started_at = clock_timestamp(),
    lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
WHERE {by_key}
RETURNING leased.priority, date_part('epoch', leased.available_at), leased.id, leased.queue, {columns}"""

_SUSPECTS = ("suspects", "sharing")
_ANY = 1_234_567_890  # stands for the limit while Django compiles the queryset
_OWN_COLUMNS = 4  # those of RETURNING that are the claim's own
_ORDER = itemgetter(0, 1, 2)  # a float of seconds holds the microseconds of any time that is due, until 2255


def claim(
    model: type[LeasedRow],
    *,
    owner: str,
    token: uuid.UUID,
    limit: int,
    lease_seconds: float,
    kinds: Sequence[str],
    queues: Sequence[str] = (),
    suspects: bool = False,
    sharing: bool = False,
    position: Position | None = None,
    columns: tuple[str, ...] = ("id",),
    using: str,
) -> list[tuple[Any, ...]]:
    """Claim up to ``limit`` due rows, best first (priority, available_at, id), and return ``columns`` of each.

    ``token`` must be fresh for every call: with the id it is the fence, and it finds a claim whose reply was
    lost. ``kinds`` are the handlers this process has; rows of other kinds wait, and so do those of a queue or kind
    that is paused. No ``queues`` means all. ``suspects`` claims rows whose last worker died, and only those;
    otherwise only rows that have no crash. ``sharing`` leaves those that one more crash would bury: for a process that
    has run others before. ``columns`` are SQL expressions over the alias ``leased``. With a
    ``position`` a flood is claimed from where the last claim ended, and the whole is looked at again in between.

    One statement in autocommit is the shortest transaction there is. Under READ COMMITTED, with SKIP LOCKED,
    no row can go to two callers, and the literal status in the predicate keeps the plan on the partial index.
    """
    if not kinds or limit < 1:
        return []
    params = {
        "owner": owner,
        "token": token,
        "lease_seconds": lease_seconds,
        "kinds": list(kinds),
        "queues": list(queues),
        "limit": limit,
    }
    position = None if suspects else position
    found: list[tuple[Any, ...]] = []
    if position is not None and position.usable():
        sql = _claim_sql(model, "known", columns, using)
        found = _claimed(sql, {**params, **position.params()}, using)
    if len(found) < limit:
        lanes = ("sharing" if sharing else "suspects") if suspects else "named" if queues else "all"
        sql = _claim_sql(model, lanes, columns, using)
        found += _claimed(sql, {**params, "limit": limit - len(found)}, using)
        if position is not None:
            position.looked()
    if position is not None:
        position.note(found if len(found) == limit else [])
    return [row[_OWN_COLUMNS:] for row in found]


class Asked(TypedDict):
    """What a claim of any table is asked for; see :func:`claim`."""

    owner: str
    token: uuid.UUID
    limit: int
    lease_seconds: float
    names: Sequence[str]
    """The kinds of row that the caller has handlers for."""
    queues: Sequence[str]
    suspects: bool
    sharing: NotRequired[bool]
    position: NotRequired[Position | None]
    using: str


def leased(model: type[LeasedRow], columns: tuple[str, ...], asked: Asked) -> list[tuple[Any, ...]]:
    """:func:`claim`, and of each row its lease and then ``columns``."""
    named: dict[str, Any] = {**asked}
    found = claim(model, kinds=named.pop("names"), columns=("leased.id", *columns), **named)
    token, owner, label = asked["token"], asked["owner"], model.LEASE.label
    return [(Lease(pk, token, owner, label), *rest) for pk, *rest in found]


def _claimed(sql: str, params: dict[str, Any], using: str) -> list[tuple[Any, ...]]:
    return sorted(rows(using, sql, params, often=True), key=_ORDER)


@lru_cache
def _claim_sql(model: type[LeasedRow], lanes: str, columns: tuple[str, ...], using: str) -> str:
    """The text for "all" lanes, those of "named" queues, the "known" of a position, "suspects", or "sharing" ones."""
    picked = _picked(model, lanes, using)
    if lanes in _SUSPECTS:
        due = _DUE_SUSPECTS.format(picked=picked)
    else:
        walk = KNOWN_LANES if lanes == "known" else all_lanes(model, named=lanes == "named")
        names = "" if lanes == "known" else "(queue, priority)"
        due = _DUE.format(lanes=walk, columns=names, picked=picked, open=not_paused("lane.queue", "queue"))
    return _CLAIM.format(
        due=due, table=table_of(model), running=RUNNING, columns=", ".join(columns), by_key=by_key("due")
    )


def _picked(model: type[LeasedRow], lanes: str, using: str) -> str:
    """SQL of the locking queryset. Its values are literals or named parameters, so one text serves every call."""
    rules, table = model.LEASE, table_of(model)
    found = model._base_manager.using(using).filter(
        literally(f"status = '{rules.claimable}'"),
        literally("available_at <= statement_timestamp()"),
        literally(f"{rules.kind_column} = ANY(%(kinds)s::text[])"),
        literally(not_paused(rules.kind_column, "type")),
    )
    if lanes in _SUSPECTS:
        if lanes == "sharing":
            found = found.filter(literally("crash_count + 1 < max_crashes"))
        chosen = literally("cardinality(%(queues)s::text[]) = 0 OR queue = ANY(%(queues)s::text[])")
        found = found.filter(literally("crash_count > 0"), chosen, literally(not_paused("queue", "queue")))
        found = found.order_by("priority", "available_at", "id")
    else:
        lane = literally(f"{table}.queue = lane.queue AND {table}.priority = lane.priority")
        found = found.filter(literally("crash_count = 0"), lane).order_by("available_at", "id")
    if lanes == "known":
        found = found.filter(literally(f"({table}.available_at, {table}.id) > (lane.at, lane.id)"))
    locked = found.select_for_update(skip_locked=True).values("id", "available_at")[:_ANY]
    with transaction.atomic(using=using):  # Django compiles a locking query only inside a transaction
        sql, params = locked.query.get_compiler(using).as_sql()
    assert not params and sql.count(f" LIMIT {_ANY} ") == 1, "the claim's text must not depend on values"
    return str(sql).replace(f" LIMIT {_ANY} ", " LIMIT %(limit)s ")
