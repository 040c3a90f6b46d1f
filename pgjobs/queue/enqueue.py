"""Enqueue: rows in the caller's transaction, with at most one NOTIFY per call and in the same round trip."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.databases import warn_if_committed_apart
from pgjobs.queue.models import Job

CHANNEL = "pgjobs"
"""Workers listen here. A notification carries nothing: it only says "look"."""

_CHUNK = 5_000

_INSERT = """
INSERT INTO pgjobs_job
    (job_type, queue, priority, max_attempts, max_crashes, available_at, payload, idempotency_key)
SELECT %(job_type)s, %(queue)s, %(priority)s, %(max_attempts)s, %(max_crashes)s,
       COALESCE(%(at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s)),
       given.payload::jsonb, given.idempotency_key
FROM unnest(%(payloads)s::text[], %(keys)s::text[])
     WITH ORDINALITY AS given(payload, idempotency_key, position)
ORDER BY given.position
RETURNING id, created_at, available_at"""

# The subquery is not correlated, so it runs once, however many rows there are.
_NOTIFYING = f", (SELECT pg_notify('{CHANNEL}', ''))"


@dataclass(frozen=True, slots=True)
class NewJobs:
    """What all rows of one enqueue call have in common."""

    job_type: str
    queue: str
    priority: int
    max_attempts: int
    max_crashes: int
    run_after: dt.datetime | dt.timedelta | None


def insert_job(new: NewJobs, payload: dict[str, Any], text: str, key: str | None) -> Job:
    """One row, and the instance for it. ``text`` is ``payload`` as JSON."""
    ((pk, created_at, available_at, *_),) = _insert(new, [text], [key], notify=True)
    job = Job(
        id=pk,
        job_type=new.job_type,
        queue=new.queue,
        priority=new.priority,
        max_attempts=new.max_attempts,
        max_crashes=new.max_crashes,
        payload=payload,
        idempotency_key=key,
        created_at=created_at,
        available_at=available_at,
    )
    job._state.adding = False
    job._state.db = get_settings().database
    return job


def insert_jobs(new: NewJobs, texts: Sequence[str], keys: Sequence[str | None]) -> list[int]:
    """Many rows, all or none; their ids in the order given."""
    if len(texts) <= _CHUNK:
        return [pk for pk, *_ in _insert(new, texts, keys, notify=True)] if texts else []
    ids: list[int] = []
    with transaction.atomic(using=get_settings().database):
        for start in range(0, len(texts), _CHUNK):
            end = start + _CHUNK
            last = end >= len(texts)
            ids += [pk for pk, *_ in _insert(new, texts[start:end], keys[start:end], notify=last)]
    return ids


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
    sql = _INSERT_CALLS + (_NOTIFYING if get_settings().notify else "")
    return [row[0] for row in rows(using, sql, params)]


def notify(*, using: str) -> None:
    """Say "look" to all workers, for rows that have become claimable without an insert."""
    rows(using, f"SELECT pg_notify('{CHANNEL}', '')", {})


def _insert(
    new: NewJobs, texts: Sequence[str], keys: Sequence[str | None], *, notify: bool
) -> list[tuple[Any, ...]]:
    settings = get_settings()
    warn_if_committed_apart(settings.database, "enqueue()", new.job_type)
    at, delay = _when(new.run_after)
    # Also for future jobs: an idle worker then learns when to look again.
    sql = _INSERT + (_NOTIFYING if notify and settings.notify else "")
    params = {
        "job_type": new.job_type,
        "queue": new.queue,
        "priority": new.priority,
        "max_attempts": new.max_attempts,
        "max_crashes": new.max_crashes,
        "at": at,
        "delay": delay,
        "payloads": list(texts),
        "keys": list(keys),
    }
    return rows(settings.database, sql, params)


def _when(run_after: dt.datetime | dt.timedelta | None) -> tuple[dt.datetime | None, float]:
    """An instant, or a delay that the database adds to its own clock."""
    if isinstance(run_after, dt.datetime):
        return run_after, 0.0
    return None, run_after.total_seconds() if run_after else 0.0
