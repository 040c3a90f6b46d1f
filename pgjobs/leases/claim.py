"""Claim: due rows of known kinds, best first, become this owner's in one short statement.

The heart is a queryset with ``select_for_update(skip_locked=True)``; around it a walk from lane to lane
(a lane is one priority of one queue), so that rows of other queues and future rows at a better priority are
stepped over by one index probe each instead of being read.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.db import models, transaction
from django.db.models.expressions import RawSQL

from pgjobs.connections import rows
from pgjobs.leases.models import LeasedRow
from pgjobs.leases.states import RUNNING

# Every pair (queue, priority) that has rows to claim: one index probe a pair, and one more to find the end.
_ALL_LANES = """
    (SELECT queue, priority FROM {table} WHERE {claimable} ORDER BY queue, priority LIMIT 1)
    UNION ALL
    SELECT further.queue, further.priority FROM lanes, LATERAL (
        SELECT t.queue, t.priority FROM {table} AS t
        WHERE {claimable} AND (t.queue, t.priority) > (lanes.queue, lanes.priority)
        ORDER BY t.queue, t.priority LIMIT 1
    ) AS further"""

# The same for named queues, without stepping through the others.
_LANES_OF_QUEUES = """
    SELECT named.queue, (SELECT min(t.priority) FROM {table} AS t
                         WHERE {claimable} AND t.queue = named.queue) AS priority
    FROM (SELECT DISTINCT unnest(%(queues)s::text[])) AS named(queue)
    UNION ALL
    SELECT lanes.queue, (SELECT min(t.priority) FROM {table} AS t
                         WHERE {claimable} AND t.queue = lanes.queue AND t.priority > lanes.priority)
    FROM lanes WHERE lanes.priority IS NOT NULL"""

# Priorities are pulled one after another and only until the limit is met. Within one priority the lanes of
# several queues are merged by available_at and id; rows locked there beyond the limit are free at commit.
_DUE = """
WITH RECURSIVE lanes(queue, priority) AS ({lanes}),
levels AS (SELECT DISTINCT priority FROM lanes WHERE priority IS NOT NULL ORDER BY priority),
due AS MATERIALIZED (
    SELECT best.id FROM levels CROSS JOIN LATERAL (
        SELECT picked.id, picked.available_at FROM lanes AS lane CROSS JOIN LATERAL ({picked}) AS picked
        WHERE lane.priority = levels.priority
        ORDER BY picked.available_at, picked.id LIMIT {limit}
    ) AS best LIMIT {limit}
)"""

_DUE_SUSPECTS = """
WITH due AS MATERIALIZED (SELECT picked.id FROM ({picked}) AS picked)"""

# pending -> running. Fence: none to check, a fresh one is written. Locks: skips what others hold.
_CLAIM = """{due}
UPDATE {table} AS leased
SET status = '{running}', attempt_count = leased.attempt_count + 1, lease_owner = %(owner)s,
    lease_token = %(token)s::uuid, heartbeat_at = clock_timestamp(), started_at = clock_timestamp(),
    lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
FROM due WHERE leased.id = due.id
RETURNING leased.priority, leased.available_at, leased.id, {columns}"""

_NEXT_DUE = """
WITH RECURSIVE lanes(queue, priority) AS ({lanes})
SELECT extract(epoch FROM min(head.available_at) - statement_timestamp())::float8
FROM lanes CROSS JOIN LATERAL (
    SELECT t.available_at FROM {table} AS t
    WHERE {claimable} AND t.queue = lanes.queue AND t.priority = lanes.priority
      AND t.available_at > statement_timestamp()
    ORDER BY t.available_at LIMIT 1
) AS head"""

_SUSPECTS = """
SELECT count(*) FILTER (WHERE available_at <= statement_timestamp()),
       extract(epoch FROM min(available_at) FILTER (WHERE available_at > statement_timestamp())
                          - statement_timestamp())::float8
FROM (SELECT available_at FROM {table}
      WHERE status = '{claimable}' AND crash_count > 0 AND {kind} = ANY(%(kinds)s::text[])
        AND (cardinality(%(queues)s::text[]) = 0 OR queue = ANY(%(queues)s::text[]))
      ORDER BY priority, available_at, id LIMIT 100) AS suspect"""


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
    columns: tuple[str, ...] = ("id",),
    using: str,
) -> list[tuple[Any, ...]]:
    """Claim up to ``limit`` due rows, best first (priority, available_at, id), and return ``columns`` of each.

    ``token`` must be fresh for every call: with the id it is the fence, and it finds a claim whose reply was
    lost. ``kinds`` are the handlers this process has; rows of other kinds wait. No ``queues`` means all.
    ``suspects`` claims rows whose last worker died, and only those; otherwise only rows that have no crash.
    ``columns`` are SQL expressions over the alias ``leased``.

    One statement in autocommit is the shortest transaction there is. Under READ COMMITTED, with SKIP LOCKED,
    no row can go to two callers, and the literal status in the predicate keeps the plan on the partial index.
    """
    if not kinds or limit < 1:
        return []
    sql = _claim_sql(model, limit, suspects, bool(queues), columns, using)
    params = {
        "owner": owner,
        "token": token,
        "lease_seconds": lease_seconds,
        "kinds": list(kinds),
        "queues": list(queues),
    }
    return [tuple(rest) for _, _, _, *rest in sorted(rows(using, sql, params), key=_in_order)]


def _in_order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:3]


def seconds_until_due(model: type[LeasedRow], *, queues: Sequence[str] = (), using: str) -> float | None:
    """Seconds until the next future row becomes due, or None when none waits for its time."""
    sql = _NEXT_DUE.format(
        lanes=_lanes(model, bool(queues)), table=_table(model), claimable=_claimable(model)
    )
    ((seconds,),) = rows(using, sql, {"queues": list(queues)})
    return None if seconds is None else float(seconds)


def suspects_waiting(
    model: type[LeasedRow], *, kinds: Sequence[str], queues: Sequence[str] = (), using: str
) -> tuple[int, float | None]:
    """How many suspects are due (counted to 100), and seconds until the next one is, or None."""
    sql = _SUSPECTS.format(table=_table(model), claimable=model.LEASE.claimable, kind=model.LEASE.kind_column)
    ((due, seconds),) = rows(using, sql, {"kinds": list(kinds), "queues": list(queues)})
    return due, None if seconds is None else float(seconds)


def anything_due(
    model: type[LeasedRow], *, kinds: Sequence[str], queues: Sequence[str] = (), using: str
) -> bool:
    """Whether a row that is no suspect could be claimed now, or is held up by another transaction."""
    found = model._base_manager.using(using).filter(
        _literally(f"{_claimable(model)} AND available_at <= statement_timestamp()")
    )
    found = found.filter(**{f"{model.LEASE.kind_column}__in": list(kinds)})
    return bool((found.filter(queue__in=list(queues)) if queues else found).exists())


@lru_cache(maxsize=512)
def _claim_sql(
    model: type[LeasedRow], limit: int, suspects: bool, named: bool, columns: tuple[str, ...], using: str
) -> str:
    if suspects:
        due = _DUE_SUSPECTS.format(picked=_picked(model, limit, suspects, named, using))
    else:
        due = _DUE.format(
            lanes=_lanes(model, named), picked=_picked(model, limit, suspects, named, using), limit=limit
        )
    return _CLAIM.format(due=due, table=_table(model), running=RUNNING, columns=", ".join(columns))


def _picked(model: type[LeasedRow], limit: int, suspects: bool, named: bool, using: str) -> str:
    """SQL of the locking queryset. Its values are literals or named parameters, so one text serves every call."""
    rules = model.LEASE
    found = model._base_manager.using(using).filter(
        _literally(f"status = '{rules.claimable}'"),
        _literally("available_at <= statement_timestamp()"),
        _literally(f"{rules.kind_column} = ANY(%(kinds)s::text[])"),
    )
    if suspects:
        found = found.filter(_literally("crash_count > 0")).order_by("priority", "available_at", "id")
        if named:
            found = found.filter(_literally("queue = ANY(%(queues)s::text[])"))
    else:
        lane = _literally(f"{_table(model)}.queue = lane.queue AND {_table(model)}.priority = lane.priority")
        found = found.filter(_literally("crash_count = 0"), lane).order_by("available_at", "id")
    locked = found.select_for_update(skip_locked=True).values("id", "available_at")[:limit]
    with transaction.atomic(using=using):  # Django compiles a locking query only inside a transaction
        sql, params = locked.query.get_compiler(using).as_sql()
    assert not params, "the claim's text must not depend on values"
    return str(sql)


def _lanes(model: type[LeasedRow], named: bool) -> str:
    text = _LANES_OF_QUEUES if named else _ALL_LANES
    return text.format(table=_table(model), claimable=_claimable(model))


def _claimable(model: type[LeasedRow]) -> str:
    return f"status = '{model.LEASE.claimable}' AND crash_count = 0"


def _table(model: type[LeasedRow]) -> str:
    return f'"{model._meta.db_table}"'


def _literally(condition: str) -> RawSQL:
    return RawSQL(condition, (), output_field=models.BooleanField())
