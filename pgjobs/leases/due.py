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
              FROM pgjobs_queuepause WHERE until > statement_timestamp()))::float8
FROM lanes LEFT JOIN LATERAL (
    SELECT true AS due FROM {table} AS t
    WHERE {claimable} AND t.queue = lanes.queue AND t.priority = lanes.priority
      AND t.available_at <= statement_timestamp() AND t.{kind} = ANY(%(kinds)s::text[]) AND {kind_open}
    ORDER BY t.available_at LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT t.available_at FROM {table} AS t
    WHERE {claimable} AND t.queue = lanes.queue AND t.priority = lanes.priority
      AND t.available_at > statement_timestamp() AND isfinite(t.available_at)
    ORDER BY t.available_at LIMIT 1
) AS head ON true
WHERE {queue_open}"""

_SUSPECTS = """
SELECT count(*) FILTER (WHERE available_at <= statement_timestamp()),
       extract(epoch FROM min(available_at) FILTER (WHERE available_at > statement_timestamp())
                          - statement_timestamp())::float8
FROM (SELECT available_at FROM {table}
      WHERE status = '{claimable}' AND crash_count > 0 AND {kind} = ANY(%(kinds)s::text[])
        AND (cardinality(%(queues)s::text[]) = 0 OR queue = ANY(%(queues)s::text[]))
        AND {kind_open} AND {queue_open}
      ORDER BY priority, available_at, id LIMIT 100) AS suspect"""


def outlook(
    model: type[LeasedRow], *, kinds: Sequence[str], queues: Sequence[str] = (), using: str
) -> tuple[bool, float | None]:
    """Whether a row that is no suspect is due now, and seconds until the next future one is or a pause ends, or None.

    What is paused is not due.
    """
    sql = _OUTLOOK.format(
        lanes=all_lanes(model, named=bool(queues)),
        table=table_of(model),
        claimable=claimable(model),
        kind=model.LEASE.kind_column,
        kind_open=not_paused(f"t.{model.LEASE.kind_column}", "type"),
        queue_open=not_paused("lanes.queue", "queue"),
    )
    ((due, seconds),) = rows(using, sql, {"kinds": list(kinds), "queues": list(queues)})
    return due, None if seconds is None else float(seconds)


def suspects_waiting(
    model: type[LeasedRow], *, kinds: Sequence[str], queues: Sequence[str] = (), using: str
) -> tuple[int, float | None]:
    """How many suspects are due (counted to 100), and seconds until the next one is, or None."""
    sql = _SUSPECTS.format(
        table=table_of(model),
        claimable=model.LEASE.claimable,
        kind=model.LEASE.kind_column,
        kind_open=not_paused(model.LEASE.kind_column, "type"),
        queue_open=not_paused("queue", "queue"),
    )
    ((due, seconds),) = rows(using, sql, {"kinds": list(kinds), "queues": list(queues)})
    return due, None if seconds is None else float(seconds)
