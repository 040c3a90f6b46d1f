"""What waits to be claimed, without claiming it: when the next row is due, and whether suspects are."""

from __future__ import annotations

from collections.abc import Sequence

from pgjobs.connections import rows
from pgjobs.leases.lanes import all_lanes, claimable, literally, table_of
from pgjobs.leases.models import LeasedRow

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


def seconds_until_due(model: type[LeasedRow], *, queues: Sequence[str] = (), using: str) -> float | None:
    """Seconds until the next future row becomes due, or None when none waits for its time."""
    sql = _NEXT_DUE.format(
        lanes=all_lanes(model, named=bool(queues)), table=table_of(model), claimable=claimable(model)
    )
    ((seconds,),) = rows(using, sql, {"queues": list(queues)})
    return None if seconds is None else float(seconds)


def suspects_waiting(
    model: type[LeasedRow], *, kinds: Sequence[str], queues: Sequence[str] = (), using: str
) -> tuple[int, float | None]:
    """How many suspects are due (counted to 100), and seconds until the next one is, or None."""
    sql = _SUSPECTS.format(
        table=table_of(model), claimable=model.LEASE.claimable, kind=model.LEASE.kind_column
    )
    ((due, seconds),) = rows(using, sql, {"kinds": list(kinds), "queues": list(queues)})
    return due, None if seconds is None else float(seconds)


def anything_due(
    model: type[LeasedRow], *, kinds: Sequence[str], queues: Sequence[str] = (), using: str
) -> bool:
    """Whether a row that is no suspect could be claimed now, or is held up by another transaction."""
    found = model._base_manager.using(using).filter(
        literally(f"{claimable(model)} AND available_at <= statement_timestamp()")
    )
    found = found.filter(**{f"{model.LEASE.kind_column}__in": list(kinds)})
    return bool((found.filter(queue__in=list(queues)) if queues else found).exists())
