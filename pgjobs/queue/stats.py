"""Read-only counts and ages, by the database's clock. Every read is bounded, however large the table is.

Counts stop at :data:`COUNT_LIMIT` + 1, which reads as "more than the limit".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.queue.models import Worker
from pgjobs.queue.registry import registry

COUNT_LIMIT = 10_000
"""The highest exact count; one more row means "and more"."""

HEAD_LIMIT = 100
"""Rows at the head of a queue that are looked at for what nobody claims; as many of one type mean "and more"."""

_LANE_LIMIT = 1_000
_QUEUE_LIMIT = 200
_TYPE_LIMIT = 100
_NEWEST = 1_000

# Every pair (queue, priority) that has claimable rows: one index probe each, the rows between are skipped.
_LANES = """
WITH RECURSIVE lanes(queue, priority) AS (
    (SELECT t.queue, t.priority FROM pgjobs_job AS t WHERE t.status = 'pending' AND t.crash_count = 0
     ORDER BY t.queue, t.priority LIMIT 1)
    UNION ALL
    SELECT further.queue, further.priority FROM lanes CROSS JOIN LATERAL (
        SELECT t.queue, t.priority FROM pgjobs_job AS t
        WHERE t.status = 'pending' AND t.crash_count = 0
          AND (t.queue, t.priority) > (lanes.queue, lanes.priority)
        ORDER BY t.queue, t.priority LIMIT 1
    ) AS further
),
lane AS MATERIALIZED (SELECT queue, priority FROM lanes LIMIT %(lanes)s)"""

# Within a lane the due rows are one stretch of the claim index and the future rows the next.
_BACKLOG = f"""{_LANES},
suspect AS MATERIALIZED (
    SELECT t.queue, t.available_at FROM pgjobs_job AS t WHERE t.status = 'pending' AND t.crash_count > 0
    ORDER BY t.priority, t.available_at, t.id LIMIT %(limit)s
),
part AS (
    SELECT lane.queue, due.jobs AS due, due.oldest, later.jobs AS later
    FROM lane
    CROSS JOIN LATERAL (SELECT count(*) AS jobs, min(head.available_at) AS oldest FROM (
        SELECT t.available_at FROM pgjobs_job AS t
        WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue = lane.queue
          AND t.priority = lane.priority AND t.available_at <= statement_timestamp()
        ORDER BY t.available_at LIMIT %(limit)s) AS head) AS due
    CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM (
        SELECT t.available_at FROM pgjobs_job AS t
        WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue = lane.queue
          AND t.priority = lane.priority AND t.available_at > statement_timestamp()
        ORDER BY t.available_at LIMIT %(limit)s) AS head) AS later
    UNION ALL
    SELECT queue, count(*) FILTER (WHERE available_at <= statement_timestamp()),
           min(available_at) FILTER (WHERE available_at <= statement_timestamp()),
           count(*) FILTER (WHERE available_at > statement_timestamp())
    FROM suspect GROUP BY queue
)
SELECT queue, least(sum(due), %(limit)s)::int, least(sum(later), %(limit)s)::int,
       statement_timestamp() - min(oldest)
FROM part GROUP BY queue ORDER BY queue LIMIT %(queues)s"""  # noqa: S608 - two constants

# Rows that nobody claims stay at the head of their queue, so the head is where to look for them.
_UNKNOWN = f"""{_LANES},
waiting AS (
    SELECT head.queue, head.job_type, head.available_at
    FROM (SELECT DISTINCT queue FROM lane) AS named CROSS JOIN LATERAL (
        SELECT t.queue, t.job_type, t.available_at FROM pgjobs_job AS t
        WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue = named.queue
        ORDER BY t.priority, t.available_at, t.id LIMIT %(head)s) AS head
    UNION ALL
    (SELECT t.queue, t.job_type, t.available_at FROM pgjobs_job AS t
     WHERE t.status = 'pending' AND t.crash_count > 0
     ORDER BY t.priority, t.available_at, t.id LIMIT %(head)s)
)
SELECT queue, job_type, count(*)::int, statement_timestamp() - min(available_at)
FROM waiting WHERE job_type <> ALL(%(known)s::text[])
GROUP BY queue, job_type ORDER BY queue, job_type LIMIT %(types)s"""  # noqa: S608 - two constants

# One index probe per queue for the waiting, bounded reads for the running and the newest, and the sums of all times.
_QUEUES = """
WITH RECURSIVE named(queue) AS (
    (SELECT t.queue FROM pgjobs_job AS t WHERE t.status = 'pending' AND t.crash_count = 0
     ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT further.queue FROM named CROSS JOIN LATERAL (
        SELECT t.queue FROM pgjobs_job AS t
        WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue > named.queue
        ORDER BY t.queue LIMIT 1
    ) AS further
)
SELECT queue FROM (
    (SELECT queue FROM named LIMIT %(queues)s)
    UNION
    SELECT queue FROM (SELECT t.queue FROM pgjobs_job AS t ORDER BY t.id DESC LIMIT %(newest)s) AS newest
    UNION
    (SELECT DISTINCT queue FROM pgjobs_minute WHERE minute = 'epoch' LIMIT %(queues)s)
    UNION
    SELECT queue FROM (SELECT t.queue FROM pgjobs_job AS t WHERE t.status = 'running'
                       ORDER BY t.lease_owner, t.id LIMIT %(limit)s) AS running
    UNION
    SELECT queue FROM pgjobs_worker, jsonb_array_elements_text(
        CASE jsonb_typeof(queues) WHEN 'array' THEN queues ELSE '[]' END) AS queue
) AS every ORDER BY queue LIMIT %(queues)s"""

_RUNNING = """
SELECT queue, count(*) FROM (
    SELECT t.queue FROM pgjobs_job AS t WHERE t.status = 'running' ORDER BY t.lease_owner, t.id LIMIT %(limit)s
) AS held GROUP BY queue"""


# The order keeps each read on its partial index, whatever the statistics say.
_ENDED = """
SELECT '{status}', count(*) FROM (
    SELECT FROM pgjobs_job AS t WHERE t.status = '{status}' AND t.discarded_at IS NULL
    ORDER BY t.completed_at DESC LIMIT %(limit)s
) AS head"""

_ENDS = " UNION ALL ".join(_ENDED.format(status=status) for status in ("dead", "failed", "cancelled"))
_COUNTS = f"""{_ENDS}
UNION ALL SELECT 'running', count(*) FROM (
    SELECT FROM pgjobs_job AS t WHERE t.status = 'running' ORDER BY t.lease_owner, t.id LIMIT %(limit)s
) AS held
UNION ALL SELECT 'all', greatest(reltuples, 0)::bigint FROM pg_class
          WHERE oid = 'pgjobs_job'::regclass"""  # noqa: S608 - the template above


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """How one queue stands. ``oldest_wait`` is None when nothing is due."""

    queue: str
    due: int
    later: int
    running: int
    live_workers: int
    oldest_wait: timedelta | None


@dataclass(frozen=True, slots=True)
class UnknownWaiting:
    """Waiting jobs of a type that no handler of this process carries. ``oldest_wait`` below 0: not due yet."""

    queue: str
    job_type: str
    jobs: int
    oldest_wait: timedelta


def silence_seconds() -> float:
    """A worker unheard of for so long counts as silent: its leases have lapsed by then."""
    return get_settings().lease_seconds


def live_workers() -> QuerySet[Worker]:
    """Workers that have not stopped and whose heartbeat is not older than :func:`silence_seconds`."""
    since = Now() - timedelta(seconds=silence_seconds())
    return Worker._base_manager.using(get_settings().database).filter(
        stopped_at__isnull=True, heartbeat_at__gt=since
    )


def waiting() -> dict[str, tuple[int, int, timedelta | None]]:
    """By queue: jobs due, jobs for later, and how long the oldest that is due has waited."""
    return {queue: (due, later, oldest) for queue, due, later, oldest in _read(_BACKLOG, lanes=_LANE_LIMIT)}


def backlog() -> list[QueueBacklog]:
    """Every queue with jobs that wait or run."""
    held_up = waiting()
    running: dict[str, int] = dict(_read(_RUNNING))
    serving = list(live_workers().values_list("queues", flat=True))
    found = []
    for queue in sorted({*held_up, *running}):
        due, later, oldest = held_up.get(queue, (0, 0, None))
        found.append(QueueBacklog(queue, due, later, running.get(queue, 0), _serving(queue, serving), oldest))
    return found


def by_status() -> dict[str, int]:
    """Jobs that are dead, failed, cancelled and running, each counted to the limit and no further.

    What is discarded is out of sight. One more than :data:`COUNT_LIMIT` means "and more". ``all`` is the server's
    estimate.
    """
    return dict(_read(_COUNTS))


def unknown_waiting() -> list[UnknownWaiting]:
    """Waiting jobs of types unknown here, among the first rows of each queue in the order of the claim."""
    found = _read(_UNKNOWN, lanes=_LANE_LIMIT, known=registry.names(), types=_TYPE_LIMIT, head=HEAD_LIMIT)
    return [UnknownWaiting(*row) for row in found]


def queue_names() -> list[str]:
    """Queues with waiting or running jobs, with recent jobs, in which anything ever ended, or named by a worker."""
    return [name for (name,) in _read(_QUEUES, newest=_NEWEST)]


def _read(sql: str, **params: Any) -> list[tuple[Any, ...]]:
    bounds = {"limit": COUNT_LIMIT + 1, "queues": _QUEUE_LIMIT}
    return rows(get_settings().database, sql, {**bounds, **params})


def _serving(queue: str, served: Iterable[Any]) -> int:
    return sum(not queues or queue in queues for queues in served)
