"""What waits to be claimed, without claiming it: when the next row is due, and whether suspects are."""

from __future__ import annotations

from collections.abc import Sequence

from pgjobs.connections import rows
from pgjobs.leases.lanes import all_lanes, claimable, not_paused, table_of
from pgjobs.leases.models import LeasedRow

# Lane by lane: whether a row of a known kind is due, and when the next future one is, or a pause ends.
_OUTLOOK = """
WITH RECURSIVE lanes(queue, priority) AS ({lanes})
SELECT COALESCE(bool_or(first.due), false),
       LEAST(extract(epoch FROM min(head.available_at) - statement_timestamp()),
             (SELECT extract(epoch FROM min(until) - statement_timestamp())
              FROM pgjobs_queuepause WHERE until > statement_timestamp() AND isfinite(until)))::float8
FROM lanes LEFT JOIN LATERAL (
    SELECT true AS due FROM {table} AS t
    WHERE {claimable} AND t.queue = lanes.queue AND t.priority = lanes.priority
      AND t.available_at <= statement_timestamp() AND t.{kind} = ANY(%({kinds})s::text[]) AND {kind_open}
    ORDER BY t.available_at LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT t.available_at FROM {table} AS t
    WHERE {claimable} AND t.queue = lanes.queue AND t.priority = lanes.priority
      AND t.available_at > statement_timestamp() AND isfinite(t.available_at)
    ORDER BY t.available_at LIMIT 1
) AS head ON true
WHERE {queue_open}"""

# Priority by priority, so that any number of future suspects at a better one hides none that is due.
_SUSPECTS = """
WITH RECURSIVE levels(priority) AS (
    SELECT min(priority) FROM {table} WHERE {suspect}
    UNION ALL
    SELECT (SELECT min(t.priority) FROM {table} AS t WHERE {suspect} AND t.priority > levels.priority)
    FROM levels WHERE levels.priority IS NOT NULL
)
SELECT (SELECT count(*) FROM (SELECT 1 FROM levels CROSS JOIN LATERAL (
            SELECT 1 FROM {table} AS t WHERE {suspect} AND t.priority = levels.priority AND {soon} AND {open}
            ORDER BY available_at LIMIT 100) AS each LIMIT 100) AS due),
       (SELECT extract(epoch FROM min(head.available_at) - statement_timestamp())::float8
        FROM levels CROSS JOIN LATERAL (
            SELECT available_at FROM {table} AS t
            WHERE {suspect} AND t.priority = levels.priority AND NOT {soon} AND {open}
            ORDER BY available_at LIMIT 1) AS head)"""

_ANY_SUSPECT = """EXISTS (
    SELECT 1 FROM {table} WHERE status = '{claimable}' AND crash_count > 0 AND {soon}
    AND {kind} = ANY(%({kinds})s::text[])
    AND (cardinality(%(queues)s::text[]) = 0 OR queue = ANY(%(queues)s::text[])) AND {open})"""

# As the claim takes them. The locks end with the statement.
_FREE = """
SELECT count(*) FROM (
    SELECT 1 FROM {table} WHERE {suspect} AND {soon} AND {open}
    ORDER BY priority, available_at, id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) AS free"""
_SOON = "(available_at <= statement_timestamp() + make_interval(secs => %(ahead)s))"


def outlook(
    model: type[LeasedRow], *, kinds: Sequence[str], queues: Sequence[str] = (), using: str
) -> tuple[bool, float | None]:
    """Whether a row that is no suspect is due now, and seconds until the next future one is or a pause ends, or None.

    What is paused is not due.
    """
    sql = outlook_sql(model, named=bool(queues))
    ((due, seconds),) = rows(using, sql, {"kinds": list(kinds), "queues": list(queues)})
    return due, None if seconds is None else float(seconds)


def outlook_sql(model: type[LeasedRow], *, named: bool, kinds: str = "kinds") -> str:
    """The statement of :func:`outlook`, to be part of a larger one; ``kinds`` is the name of its parameter."""
    return _OUTLOOK.format(
        lanes=all_lanes(model, named=named),
        table=table_of(model),
        claimable=claimable(model),
        kind=model.LEASE.kind_column,
        kinds=kinds,
        kind_open=not_paused(f"t.{model.LEASE.kind_column}", "type"),
        queue_open=not_paused("lanes.queue", "queue"),
    )


def suspects_waiting(
    model: type[LeasedRow],
    *,
    kinds: Sequence[str],
    queues: Sequence[str] = (),
    ahead: float = 0.0,
    sharing: bool = False,
    using: str,
) -> tuple[int, float | None]:
    """How many suspects are due within ``ahead`` seconds (counted to 100), and seconds until the next, or None.

    ``sharing`` counts only those that a claim of this name would take.
    """
    words = _words(model)
    if sharing:
        words["open"] += " AND crash_count + 1 < max_crashes"
    sql = _SUSPECTS.format(**words)
    params = {"kinds": list(kinds), "queues": list(queues), "ahead": ahead}
    ((due, seconds),) = rows(using, sql, params)
    return due, None if seconds is None else float(seconds)


def suspects_free(
    model: type[LeasedRow],
    *,
    kinds: Sequence[str],
    queues: Sequence[str] = (),
    ahead: float = 0.0,
    limit: int,
    using: str,
) -> int:
    """How many of those :func:`suspects_waiting` counts nobody has locked, counted to ``limit``.

    A process started for a row that another transaction holds could not claim it.
    """
    params = {"kinds": list(kinds), "queues": list(queues), "ahead": ahead, "limit": limit}
    ((free,),) = rows(using, _FREE.format(**_words(model)), params)
    return int(free)


def _words(model: type[LeasedRow]) -> dict[str, str]:
    return {
        "table": table_of(model),
        "suspect": f"status = '{model.LEASE.claimable}' AND crash_count > 0",
        "soon": _SOON,
        "open": f"{model.LEASE.kind_column} = ANY(%(kinds)s::text[]) AND (cardinality(%(queues)s::text[]) = 0 "
        f"OR queue = ANY(%(queues)s::text[])) AND {_open(model)}",
    }


def suspect_sql(model: type[LeasedRow], *, kinds: str = "kinds") -> str:
    """An SQL expression: whether :func:`suspects_waiting` would count any. Its parameters bear the same names."""
    return _ANY_SUSPECT.format(
        table=table_of(model),
        claimable=model.LEASE.claimable,
        soon=_SOON,
        kind=model.LEASE.kind_column,
        kinds=kinds,
        open=_open(model),
    )


def _open(model: type[LeasedRow]) -> str:
    """The condition that neither a row's queue nor its kind is paused."""
    return f"{not_paused('queue', 'queue')} AND {not_paused(model.LEASE.kind_column, 'type')}"
