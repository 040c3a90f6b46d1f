"""Enqueue: rows in the caller's transaction. The trigger on the table sends the NOTIFY, at most one a statement."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db import DatabaseError, connections

from pgjobs.conf import get_settings
from pgjobs.connections import row, rows, sqlstate
from pgjobs.databases import warn_if_committed_apart
from pgjobs.queue.copying import copy_jobs
from pgjobs.queue.models import Job

CHANNEL = "pgjobs"
"""Workers listen here. A notification carries nothing: it only says "look"."""

_COPIED_FROM = 200  # rows; below, the further round trips of COPY cost more than it saves
_COPY_REFUSED = {"42501", "0A000"}  # no right to the sequence of the ids; row-level security

# A subquery that is not correlated runs once, with the first row, and the trigger fires after the last.
_SILENT = ", (SELECT set_config('pgjobs.notify', 'off', true))"

# Times come as text, which Python reads several times faster than Django's adapter does; by way of JSON, since that is
# ISO 8601 whatever DateStyle says.
_INSERT_ONE = """
INSERT INTO pgjobs_job (job_type, queue, priority, max_attempts, max_crashes, payload, idempotency_key)
VALUES (%s, %s, %s, %s, %s, %s, %s)
RETURNING id, to_json(created_at) #>> '{}'"""

_INSERT_ONE_DUE = """
INSERT INTO pgjobs_job
    (job_type, queue, priority, max_attempts, max_crashes, payload, idempotency_key, available_at)
VALUES (%s, %s, %s, %s, %s, %s, %s,
        COALESCE(%s::timestamptz, statement_timestamp() + make_interval(secs => %s)))
RETURNING id, to_json(created_at) #>> '{}', to_json(available_at) #>> '{}'"""

_INSERT = """
INSERT INTO pgjobs_job
    (job_type, queue, priority, max_attempts, max_crashes, available_at, payload, idempotency_key)
SELECT %(job_type)s, %(queue)s, %(priority)s, %(max_attempts)s, %(max_crashes)s,
       COALESCE(%(at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s)),
       given.payload::jsonb, given.idempotency_key
FROM unnest(%(payloads)s::text[], %(keys)s::text[])
     WITH ORDINALITY AS given(payload, idempotency_key, position)
ORDER BY given.position
RETURNING id"""


@dataclass(frozen=True, slots=True)
class NewJobs:
    """What all rows of one enqueue call have in common."""

    job_type: str
    queue: str
    priority: int
    max_attempts: int
    max_crashes: int
    run_after: dt.datetime | dt.timedelta | None

    def columns(self) -> dict[str, Any]:
        """Name and value of those that are the same in every row."""
        return {
            "job_type": self.job_type,
            "queue": self.queue,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "max_crashes": self.max_crashes,
        }


def insert_job(new: NewJobs, payload: dict[str, Any], text: str, key: str | None) -> Job:
    """One row, and the instance for it. ``text`` is ``payload`` as JSON."""
    using = get_settings().database
    warn_if_committed_apart(using, "enqueue()", new.job_type)
    columns = new.columns()
    params = [*columns.values(), text, key]
    if new.run_after is None:
        sql = _INSERT_ONE
    else:
        sql = _INSERT_ONE_DUE
        params += _when(new.run_after)
    pk, created_at, available_at, *_ = (*row(using, sql + _quietly(), params), None)
    columns["id"] = pk
    columns["payload"] = payload
    columns["idempotency_key"] = key
    columns["created_at"] = _instant(created_at, using)
    columns["available_at"] = (
        columns["created_at"] if new.run_after is None else _instant(available_at, using)
    )
    columns["errors"] = []
    names, blank = _blank_job()
    return Job.from_db(using, names, list((blank | columns).values()))


def insert_jobs(new: NewJobs, texts: Callable[[], Iterable[str]], keys: Sequence[str | None]) -> list[int]:
    """Many rows, one for each of ``keys``, all or none; their ids in the order given.

    ``texts`` gives their payloads as JSON, and may raise, but asks no database: it is read while the server takes in
    the rows before.
    """
    if not keys:
        return []
    using = get_settings().database
    warn_if_committed_apart(using, "enqueue()", new.job_type)
    at, delay = _when(new.run_after)
    if len(keys) >= _COPIED_FROM:
        silent = not get_settings().notify
        try:
            return copy_jobs(new.columns(), texts, keys, at=at, delay=delay, silent=silent, using=using)
        except DatabaseError as error:
            if sqlstate(error) not in _COPY_REFUSED:
                raise
    given = {"at": at, "delay": delay, "payloads": list(texts()), "keys": list(keys)}
    return [pk for pk, *_ in rows(using, _INSERT + _quietly(), new.columns() | given)]


# Jobs of several types in one statement, each awaited by whoever inserts them in the same transaction.
_INSERT_CALLS = """
INSERT INTO pgjobs_job
    (job_type, queue, priority, max_attempts, max_crashes, available_at, payload, idempotency_key, awaited)
SELECT given.job_type, given.queue, given.priority, given.max_attempts, given.max_crashes,
       COALESCE(given.at, statement_timestamp() + make_interval(secs => given.delay)),
       given.payload::jsonb, given.idempotency_key, true
FROM unnest(%(job_types)s::text[], %(queues)s::text[], %(priorities)s::smallint[], %(max_attempts)s::int[],
            %(max_crashes)s::int[], %(ats)s::timestamptz[], %(delays)s::float8[], %(payloads)s::text[],
            %(keys)s::text[])
     WITH ORDINALITY AS given(job_type, queue, priority, max_attempts, max_crashes, at, delay, payload,
                              idempotency_key, position)
ORDER BY given.position
RETURNING id"""


def insert_awaited(calls: Sequence[tuple[NewJobs, str, str | None]], *, using: str) -> list[int]:
    """Insert (new, payload as JSON text, idempotency key) in the caller's transaction; ids in the order given."""
    whens = [_when(new.run_after) for new, _, _ in calls]
    params = {
        "job_types": [new.job_type for new, _, _ in calls],
        "queues": [new.queue for new, _, _ in calls],
        "priorities": [new.priority for new, _, _ in calls],
        "max_attempts": [new.max_attempts for new, _, _ in calls],
        "max_crashes": [new.max_crashes for new, _, _ in calls],
        "ats": [at for at, _ in whens],
        "delays": [delay for _, delay in whens],
        "payloads": [text for _, text, _ in calls],
        "keys": [key for _, _, key in calls],
    }
    return [pk for pk, *_ in rows(using, _INSERT_CALLS + _quietly(), params)]


def notify(*, using: str) -> None:
    """Say "look" to all workers, for rows that have become claimable without an insert."""
    rows(using, f"SELECT pg_notify('{CHANNEL}', '')", {})


def _quietly() -> str:
    """What keeps the trigger from sending a NOTIFY where none is wanted. Goes after what is returned."""
    return "" if get_settings().notify else _SILENT


def _when(run_after: dt.datetime | dt.timedelta | None) -> tuple[dt.datetime | None, float]:
    """An instant, or a delay that the database adds to its own clock."""
    if isinstance(run_after, dt.datetime):
        return run_after, 0.0
    return None, run_after.total_seconds() if run_after else 0.0


def _instant(text: str, using: str) -> dt.datetime:
    """A time that the server wrote, as Django would read it, whatever zone the session writes times in."""
    instant, zone = dt.datetime.fromisoformat(text), connections[using].timezone
    return instant.replace(tzinfo=None) if zone is None else instant.astimezone(zone)


@cache
def _blank_job() -> tuple[list[str], dict[str, Any]]:
    """Names of all columns, and the default of each that has one in Python."""
    blank = {field.attname: field.get_default() for field in Job._meta.concrete_fields}
    return list(blank), blank
