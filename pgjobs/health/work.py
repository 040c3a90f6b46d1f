"""What waits, what runs and what ended, queue by queue: jobs and executions. Every read is bounded."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from pgjobs.health.reading import Reader
from pgjobs.queue.rollups import LIFETIME

RATE_MINUTES = 5
"""Rates are means over so many minutes."""

LANES = 1_000
"""Lanes of each kind that are looked at. Where there are more, what is said of queues is not the whole."""
_QUEUES = 4 * LANES  # no fewer than the lanes can have, those of suspects and of recent ends among them
RUNNING = 10_000
"""Running rows of each kind that are looked at."""
LATELY_LIMIT = 500
"""Dead and failed jobs of the last hour are counted so far."""
_BEHIND = 30  # seconds by which the figures may lag behind the rows
_NEWEST = 1_000

_TABLES = (("job", "pgjobs_job", "pending"), ("execution", "pgjobs_execution", "enqueued"))

# Lane by lane (a lane is one priority of one queue): due rows are one stretch of the claim index, future rows the next.
_WALK = """
{kind}_lanes(queue, priority) AS (
    (SELECT t.queue, t.priority FROM {table} AS t WHERE t.status = '{status}' AND t.crash_count = 0
     ORDER BY t.queue, t.priority LIMIT 1)
    UNION ALL
    SELECT further.queue, further.priority FROM {kind}_lanes AS lane CROSS JOIN LATERAL (
        SELECT t.queue, t.priority FROM {table} AS t
        WHERE t.status = '{status}' AND t.crash_count = 0 AND (t.queue, t.priority) > (lane.queue, lane.priority)
        ORDER BY t.queue, t.priority LIMIT 1
    ) AS further
)"""
_PART = """
SELECT '{kind}' AS kind, lane.queue, due.found AS due, due.oldest, later.found AS later, later.soonest
FROM (SELECT queue, priority FROM {kind}_lanes LIMIT %(lanes)s) AS lane
CROSS JOIN LATERAL (SELECT count(*) AS found, min(head.available_at) AS oldest FROM (
    SELECT t.available_at FROM {table} AS t
    WHERE t.status = '{status}' AND t.crash_count = 0 AND t.queue = lane.queue AND t.priority = lane.priority
      AND t.available_at <= statement_timestamp()
    ORDER BY t.available_at LIMIT %(most)s) AS head) AS due
CROSS JOIN LATERAL (SELECT count(*) AS found, min(head.available_at) AS soonest FROM (
    SELECT t.available_at FROM {table} AS t
    WHERE t.status = '{status}' AND t.crash_count = 0 AND t.queue = lane.queue AND t.priority = lane.priority
      AND t.available_at > statement_timestamp()
    ORDER BY t.available_at LIMIT %(most_later)s) AS head) AS later
UNION ALL
SELECT '{kind}', queue, count(*) FILTER (WHERE available_at <= statement_timestamp()),
       min(available_at) FILTER (WHERE available_at <= statement_timestamp()),
       count(*) FILTER (WHERE available_at > statement_timestamp()),
       min(available_at) FILTER (WHERE available_at > statement_timestamp())
FROM (SELECT t.queue, t.available_at FROM {table} AS t WHERE t.status = '{status}' AND t.crash_count > 0
      ORDER BY t.priority, t.available_at, t.id LIMIT %(most)s) AS suspect GROUP BY queue"""


def _of_both(text: str, between: str) -> str:
    return between.join(text.format(kind=kind, table=table, status=status) for kind, table, status in _TABLES)


_WAITING = f"""
WITH RECURSIVE {_of_both(_WALK, ",")},
part AS ({_of_both(_PART, " UNION ALL ")})
SELECT kind, queue, least(sum(due), %(most)s)::int, min(oldest), least(sum(later), %(most_later)s)::int, min(soonest),
       (SELECT count(*) > %(lanes)s FROM (SELECT 1 FROM job_lanes LIMIT %(lanes)s + 1) AS looked)
       OR (SELECT count(*) > %(lanes)s FROM (SELECT 1 FROM execution_lanes LIMIT %(lanes)s + 1) AS looked)
FROM part GROUP BY kind, queue ORDER BY queue, kind LIMIT %(queues)s"""  # noqa: S608 - the templates above

_HELD = """
SELECT '{kind}', queue, count(*), count(*) FILTER (WHERE lapsed), min(lease_expires_at) FILTER (WHERE lapsed),
       min(id) FILTER (WHERE lapsed)
FROM (SELECT t.queue, t.id, t.lease_expires_at,
             t.lease_expires_at < clock_timestamp() - make_interval(secs => %(grace)s) AS lapsed
      FROM {table} AS t WHERE t.status = 'running' ORDER BY t.lease_owner, t.id LIMIT %(most)s) AS held
GROUP BY queue"""

# The index of fingerprints has exactly the rows in question; the last hour is counted along the index by time.
_DEAD = """
SELECT 'dead', '',
       (SELECT count(*) FROM (SELECT 1 FROM pgjobs_job AS t
                              WHERE t.status IN ('dead', 'failed') AND t.discarded_at IS NULL
                              ORDER BY t.fingerprint LIMIT %(most_dead)s) AS counted),
       (SELECT count(*) FROM (
            (SELECT 1 FROM pgjobs_job AS t WHERE t.status = 'dead' AND t.discarded_at IS NULL
               AND t.completed_at > statement_timestamp() - interval '1 hour'
             ORDER BY t.completed_at DESC LIMIT %(lately)s)
            UNION ALL
            (SELECT 1 FROM pgjobs_job AS t WHERE t.status = 'failed' AND t.discarded_at IS NULL
               AND t.completed_at > statement_timestamp() - interval '1 hour'
             ORDER BY t.completed_at DESC LIMIT %(lately)s)) AS recent),
       NULL,
       (SELECT count(*) FROM (
            (SELECT 1 FROM pgjobs_job AS t WHERE t.status = 'dead' AND t.discarded_at IS NULL
               AND t.completed_at > statement_timestamp() - make_interval(mins => %(minutes)s)
               AND t.completed_at < statement_timestamp() - make_interval(secs => %(behind)s)
             ORDER BY t.completed_at DESC LIMIT %(lately)s)
            UNION ALL
            (SELECT 1 FROM pgjobs_job AS t WHERE t.status = 'failed' AND t.discarded_at IS NULL
               AND t.completed_at > statement_timestamp() - make_interval(mins => %(minutes)s)
               AND t.completed_at < statement_timestamp() - make_interval(secs => %(behind)s)
             ORDER BY t.completed_at DESC LIMIT %(lately)s)) AS settled)"""
_HELD_AND_DEAD = _of_both(_HELD, " UNION ALL ") + " UNION ALL " + _DEAD

# One row more than queues: the newest minute of all, also where none is recent.
_RATES = f"""
SELECT newest.minute, recent.* FROM (SELECT max(minute) AS minute FROM pgjobs_minute
                                     WHERE minute > '{LIFETIME}') AS newest
LEFT JOIN (
    SELECT queue, sum(done)::bigint, sum(failed)::bigint, sum(dead)::bigint, sum(retried)::bigint,
           extract(epoch FROM statement_timestamp() - date_trunc('minute', statement_timestamp()))::float8
    FROM pgjobs_minute
    WHERE minute >= date_trunc('minute', statement_timestamp()) - make_interval(mins => %(minutes)s)
    GROUP BY queue ORDER BY queue LIMIT %(queues)s
) AS recent ON true"""  # noqa: S608 - one constant

# The newest rows lie together; how many of them are from the last minutes is a fair sample of what comes in.
_ARRIVALS = """
SELECT queue, count(*) FILTER (WHERE recent),
       extract(epoch FROM statement_timestamp() - min(began) FILTER (WHERE recent))::float8, bool_and(all_recent)
FROM (SELECT queue, recent, min(created_at) FILTER (WHERE recent) OVER () AS began,
             bool_and(recent) OVER () AS all_recent
      FROM (SELECT t.queue, t.created_at,
                   t.created_at > statement_timestamp() - make_interval(mins => %(minutes)s) AS recent
            FROM pgjobs_job AS t ORDER BY t.id DESC LIMIT %(newest)s) AS newest) AS sample
GROUP BY queue"""
_RATES_AND_ARRIVALS = f"""
SELECT 'rate', rate.*, NULL::boolean FROM ({_RATES}) AS rate
UNION ALL
SELECT 'arrival', NULL, queue, arrived, NULL, NULL, NULL, span, all_recent
FROM ({_ARRIVALS}) AS arrival(queue, arrived, span, all_recent)"""  # noqa: S608 - the two above


@dataclass(slots=True)
class Waiting:
    """What waits in one queue."""

    jobs: int = 0
    """Due, counted up to a limit."""
    executions: int = 0
    oldest_at: dt.datetime | None = None
    """When the oldest that is due became so."""
    later: int = 0
    """Not due yet, counted up to a limit."""
    next_at: dt.datetime | None = None
    """When the next of those is due."""

    @property
    def due(self) -> int:
        """Of both kinds."""
        return self.jobs + self.executions


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of one kind that run in one queue."""

    kind: str
    queue: str
    running: int
    lapsed: int
    """Of these the lease ended a while ago."""
    lapsed_since: dt.datetime | None
    lapsed_id: int | None


@dataclass(frozen=True, slots=True)
class Dead:
    """Jobs that are dead or failed and not discarded, counted up to limits."""

    total: int
    last_hour: int
    """One above ``LATELY_LIMIT`` means "and more"."""
    last_minutes: int
    """In the minutes of the rates, but for the last seconds, which may not be in them yet."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What ended in one queue in the last minutes."""

    done: int = 0
    failed: int = 0
    dead: int = 0
    retried: int = 0
    minutes: float = RATE_MINUTES

    @property
    def attempts(self) -> int:
        """All that ended in any way."""
        return self.done + self.failed + self.dead + self.retried

    @property
    def done_per_minute(self) -> float:
        """Jobs that came to their end, whichever."""
        return (self.done + self.failed + self.dead) / self.minutes

    @property
    def failed_share(self) -> float | None:
        """Attempts that did not succeed, of all; None when there were none."""
        return (self.attempts - self.done) / self.attempts if self.attempts else None


def read_waiting(reader: Reader, *, most: int, most_later: int) -> tuple[dict[str, Waiting], bool]:
    """By queue, and whether there are more lanes than were looked at; counts stop at ``most`` and ``most_later``."""
    found: dict[str, Waiting] = {}
    params = {"most": most, "most_later": most_later, "lanes": LANES, "queues": _QUEUES}
    parts = reader.ask(_WAITING, **params)
    for kind, queue, due, oldest, later, soonest, _ in parts:
        each = found.setdefault(queue, Waiting())
        each.jobs += due if kind == "job" else 0
        each.executions += due if kind == "execution" else 0
        each.oldest_at = min((at for at in (each.oldest_at, oldest) if at), default=None)
        each.later += later
        each.next_at = min((at for at in (each.next_at, soonest) if at), default=None)
    return found, bool(parts and parts[0][-1])


def read_held_and_dead(reader: Reader, *, grace: float, most_dead: int) -> tuple[list[Held], Dead]:
    """What runs, by kind and queue, and how many jobs are dead or failed and not discarded.

    ``grace`` seconds after its end a lease counts as lapsed. The dead are counted up to ``most_dead``.
    """
    limits = {"most": RUNNING, "most_dead": most_dead, "lately": LATELY_LIMIT + 1}
    times = {"grace": grace, "minutes": RATE_MINUTES, "behind": _BEHIND}
    *held, (_, _, total, lately, _, minutes) = reader.ask(_HELD_AND_DEAD, **limits, **times)
    return [Held(*row) for row in held], Dead(total, min(lately, LATELY_LIMIT + 1), minutes)


def read_rates(reader: Reader) -> tuple[dt.datetime | None, dict[str, Rate]]:
    """The newest minute that anything was counted in, and the last minutes by queue."""
    return _rates(reader.ask(_RATES, minutes=RATE_MINUTES, queues=_QUEUES))


def read_arrivals(reader: Reader) -> dict[str, float]:
    """Jobs enqueued per minute, by queue, judged by the newest thousand."""
    return _arrivals(reader.ask(_ARRIVALS, minutes=RATE_MINUTES, newest=_NEWEST))


def read_rates_and_arrivals(
    reader: Reader,
) -> tuple[tuple[dt.datetime | None, dict[str, Rate]], dict[str, float]]:
    """:func:`read_rates` and :func:`read_arrivals` by one statement."""
    found = reader.ask(_RATES_AND_ARRIVALS, minutes=RATE_MINUTES, queues=_QUEUES, newest=_NEWEST)
    rates = [row[1:8] for row in found if row[0] == "rate"]
    return _rates(rates), _arrivals([(row[2], row[3], *row[7:]) for row in found if row[0] == "arrival"])


def _rates(found: list[tuple[Any, ...]]) -> tuple[dt.datetime | None, dict[str, Rate]]:
    rates = {
        queue: Rate(done, failed, dead, retried, RATE_MINUTES + seconds / 60)
        for _, queue, done, failed, dead, retried, seconds in found
        if queue is not None
    }
    return found[0][0], rates


def _arrivals(found: list[tuple[Any, ...]]) -> dict[str, float]:
    rates = {}
    for queue, count, span, all_recent in found:
        # When all of the sample is recent, it does not reach back over the whole time.
        minutes = max(span or 0.0, 1.0) / 60 if all_recent else RATE_MINUTES
        rates[queue] = count / minutes
    return rates
