"""Lanes: a lane is one priority of one queue. Walking from lane to lane steps over what a full scan would read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from django.db import models
from django.db.models.expressions import RawSQL

from pgjobs.leases.models import LeasedRow

LOOK_BACK_SECONDS = 0.5
"""In a flood, how long a claim may go on from where the last one ended without looking at the whole again."""

_FLOOD_SECONDS = 0.1  # since the last claim; where they come more rarely, each may look at the whole

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


# The lanes of the last claim, each from where that one ended.
KNOWN_LANES = """
    SELECT queue, priority, to_timestamp(seconds) AS at, id
    FROM unnest(%(lane_queues)s::text[], %(lane_priorities)s::smallint[], %(lane_ats)s::float8[],
                %(lane_ids)s::bigint[]) AS known(queue, priority, seconds, id)"""


@dataclass(slots=True)
class Position:
    """Where the last claim of one process ended, lane by lane.

    While another session holds an old snapshot, the index keeps an entry for every row that was claimed since, and a
    scan from the start would wade through them all. Going on from the last row costs nothing; what it cannot see
    (a retry that became due earlier, a better priority) is seen at the next look at the whole, at most
    :data:`LOOK_BACK_SECONDS` later, or at once when the flood is over.
    """

    _lanes: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)
    _looked_at: float = 0.0
    _noted_at: float = 0.0

    def usable(self) -> bool:
        """Whether the next claim may go on from here."""
        now = time.monotonic()
        flooded = bool(self._lanes) and now - self._noted_at < _FLOOD_SECONDS
        return flooded and now - self._looked_at < LOOK_BACK_SECONDS

    def looked(self) -> None:
        """The whole has just been looked at."""
        self._looked_at = time.monotonic()

    def note(self, claimed: list[tuple[Any, ...]]) -> None:
        """Note (priority, available_at, id, queue, ...) rows, in the order of the claim; none to start anew."""
        self._noted_at = time.monotonic()
        self._lanes = {(row[3], row[0]): (row[1], row[2]) for row in claimed}

    def params(self) -> dict[str, list[Any]]:
        """The parameters of :data:`KNOWN_LANES`."""
        return {
            "lane_queues": [queue for queue, _ in self._lanes],
            "lane_priorities": [priority for _, priority in self._lanes],
            "lane_ats": [at for at, _ in self._lanes.values()],
            "lane_ids": [pk for _, pk in self._lanes.values()],
        }


def all_lanes(model: type[LeasedRow], *, named: bool) -> str:
    """SQL of the recursive walk over all lanes, or over those of the queues in ``queues``."""
    text = _LANES_OF_QUEUES if named else _ALL_LANES
    return text.format(table=table_of(model), claimable=claimable(model))


def not_paused(column: str, kind: str) -> str:
    """The condition that what ``column`` names is not paused: "queue", or "type" for a kind of row.

    Not correlated, so it is read once a statement. Time alone ends a pause that has an end. In words of which the
    planner makes nothing: it takes a bare ``<> ALL`` for a filter that leaves no row, and sorts the whole table.
    """
    return (
        f"COALESCE({column} <> ALL (ARRAY(SELECT paused.name::text FROM pgjobs_queuepause AS paused "  # noqa: S608
        f"WHERE paused.kind = '{kind}' AND (paused.until IS NULL OR paused.until > statement_timestamp()))), true)"
    )


def claimable(model: type[LeasedRow]) -> str:
    """The predicate of the claim index, in its literal words."""
    return f"status = '{model.LEASE.claimable}' AND crash_count = 0"


def table_of(model: type[LeasedRow]) -> str:
    """The quoted table name."""
    return f'"{model._meta.db_table}"'


def literally(condition: str) -> RawSQL:
    """A condition for a queryset, word for word; no caller's text may be in it."""
    return RawSQL(condition, (), output_field=models.BooleanField())
