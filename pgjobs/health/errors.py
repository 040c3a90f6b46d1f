"""Dead and failed jobs by cause: how many causes, since when, and what the jobs of one have in common."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.health.reading import Reader
from pgjobs.queue.models import Job
from pgjobs.redaction import PAYLOAD_READ, TEXT_READ, redacted_errors, redacted_start

GROUPS = 200
"""Groups that are told; where there are more, only the newest :data:`NEWEST` jobs are looked at."""
NEWEST = 5_000
JOBS_COUNTED = 1_000
"""A group's jobs are counted so far."""
SHARED = 200
"""Newest jobs of a group whose common traits are told."""

_BAD = "t.status IN ('dead', 'failed') AND t.discarded_at IS NULL"
_LATELY_LIMIT = 500
_MESSAGE = 500  # characters that are told

_NEWEST = f"""newest.error_class, newest.job_type, newest.queue, left(newest.last_error, {TEXT_READ}),
       CASE WHEN pg_column_size(newest.payload) <= {PAYLOAD_READ} THEN newest.payload END,
       newest.completed_at, oldest.completed_at"""

# Fingerprint by fingerprint: a probe of the index each, however many jobs share it. Rows without one come last.
_GROUPS = f"""
WITH RECURSIVE walk(fingerprint, place) AS (
    (SELECT t.fingerprint, 1 FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint IS NOT NULL
     ORDER BY t.fingerprint LIMIT 1)
    UNION ALL
    SELECT further.fingerprint, walk.place + 1 FROM walk CROSS JOIN LATERAL (
        SELECT t.fingerprint FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint > walk.fingerprint
        ORDER BY t.fingerprint LIMIT 1) AS further
    WHERE walk.place <= %(groups)s
),
lately AS (
    SELECT fingerprint, count(*) AS jobs FROM (
        (SELECT t.fingerprint FROM pgjobs_job AS t
         WHERE t.status = 'dead' AND t.discarded_at IS NULL
           AND t.completed_at > statement_timestamp() - interval '1 hour'
         ORDER BY t.completed_at DESC LIMIT %(lately)s)
        UNION ALL
        (SELECT t.fingerprint FROM pgjobs_job AS t
         WHERE t.status = 'failed' AND t.discarded_at IS NULL
           AND t.completed_at > statement_timestamp() - interval '1 hour'
         ORDER BY t.completed_at DESC LIMIT %(lately)s)) AS newest GROUP BY fingerprint
),
found AS (
    SELECT walk.fingerprint, counted.jobs, newest.id AS newest, oldest.id AS oldest FROM walk
    CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM (
        SELECT 1 FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint = walk.fingerprint
        LIMIT %(jobs)s) AS each) AS counted
    CROSS JOIN LATERAL (SELECT t.id FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint = walk.fingerprint
                        ORDER BY t.id DESC LIMIT 1) AS newest
    CROSS JOIN LATERAL (SELECT t.id FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint = walk.fingerprint
                        ORDER BY t.id LIMIT 1) AS oldest
    UNION ALL
    SELECT NULL, count(*), max(id), min(id) FROM (
        SELECT t.id FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint IS NULL
        ORDER BY t.id DESC LIMIT %(jobs)s) AS unmarked
    HAVING count(*) > 0
)
SELECT found.fingerprint, found.jobs, found.newest, found.oldest, COALESCE(lately.jobs, 0),
       {_NEWEST}
FROM found JOIN pgjobs_job AS newest ON newest.id = found.newest JOIN pgjobs_job AS oldest ON oldest.id = found.oldest
LEFT JOIN lately ON lately.fingerprint IS NOT DISTINCT FROM found.fingerprint
ORDER BY newest.completed_at DESC, found.fingerprint"""  # noqa: S608 - constants

_GROUPS_OF_NEWEST = f"""
WITH newest AS MATERIALIZED (
    (SELECT t.id, t.fingerprint, t.completed_at FROM pgjobs_job AS t
     WHERE t.status = 'dead' AND t.discarded_at IS NULL
     ORDER BY t.completed_at DESC LIMIT %(newest)s)
    UNION ALL
    (SELECT t.id, t.fingerprint, t.completed_at FROM pgjobs_job AS t
     WHERE t.status = 'failed' AND t.discarded_at IS NULL
     ORDER BY t.completed_at DESC LIMIT %(newest)s)
),
found AS (
    SELECT fingerprint, count(*) AS jobs, max(id) AS newest, min(id) AS oldest,
           count(*) FILTER (WHERE completed_at > statement_timestamp() - interval '1 hour') AS lately
    FROM newest GROUP BY fingerprint ORDER BY max(completed_at) DESC LIMIT %(groups)s
)
SELECT found.fingerprint, found.jobs, found.newest, found.oldest, found.lately,
       {_NEWEST}
FROM found JOIN pgjobs_job AS newest ON newest.id = found.newest JOIN pgjobs_job AS oldest ON oldest.id = found.oldest
ORDER BY newest.completed_at DESC, found.fingerprint"""  # noqa: S608 - constants

_SHARED = f"""
SELECT job.id, job.queue, job.job_type, job.completed_by, worker.host, worker.code_version
FROM (SELECT t.id, t.queue, t.job_type, t.completed_by FROM pgjobs_job AS t
      WHERE {_BAD} AND {{which}} ORDER BY t.id DESC LIMIT %(shared)s) AS job
LEFT JOIN pgjobs_worker AS worker ON worker.name = job.completed_by
ORDER BY job.id DESC"""  # noqa: S608 - a constant

_OLDEST = f"""
SELECT t.id FROM pgjobs_job AS t WHERE {_BAD} AND {{which}} ORDER BY t.id LIMIT 5"""  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """All dead and failed jobs of one fingerprint. What is told of it is its newest job's."""

    fingerprint: str
    """Empty: jobs that ended before there were fingerprints, or were written by others."""
    jobs: int
    """One above ``JOBS_COUNTED`` means "and more"."""
    newest_id: int
    oldest_id: int
    last_hour: int
    error_class: str
    job_type: str
    queue: str
    message: str
    """Without secrets."""
    last_seen: dt.datetime | None
    first_seen: dt.datetime | None
    """Of the jobs that are still in the table."""


@dataclass(frozen=True, slots=True)
class ErrorGroups:
    """The groups, the latest first."""

    groups: list[ErrorGroup]
    complete: bool
    """Whether all dead and failed jobs were looked at, not only the newest."""


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """What the newest jobs of a group share, and where to look."""

    looked_at: int
    shared: dict[str, list[tuple[str, int]]]
    """Trait ("queue", "job type", "worker", "host", "code version") -> values with their number, most first."""
    newest_ids: list[int]
    oldest_ids: list[int]
    sample: dict[str, Any]
    """The newest job's last entry of errors, without secrets."""


def error_groups(*, using: str | None = None) -> ErrorGroups:
    """Every cause of dead and failed jobs, as far as they can be told. Raises what the database raises."""
    with Reader(using or get_settings().database) as reader:
        found = reader.ask(_GROUPS, groups=GROUPS, jobs=JOBS_COUNTED + 1, lately=_LATELY_LIMIT)
        complete = len(found) <= GROUPS
        if not complete:
            found = reader.ask(_GROUPS_OF_NEWEST, groups=GROUPS, newest=NEWEST // 2)
    return ErrorGroups([_group(*row) for row in found], complete)


def group_detail(fingerprint: str, *, using: str | None = None) -> GroupDetail | None:
    """One group from near; None when no job has that fingerprint (any more). Raises what the database raises."""
    using = using or get_settings().database
    which = "t.fingerprint = %(fingerprint)s" if fingerprint else "t.fingerprint IS NULL"
    with Reader(using) as reader:
        found = reader.ask(_SHARED.format(which=which), fingerprint=fingerprint, shared=SHARED)
        if not found:
            return None
        oldest = [pk for (pk,) in reader.ask(_OLDEST.format(which=which), fingerprint=fingerprint)]
        job = Job._base_manager.using(using).filter(pk=found[0][0]).first()
    traits = {"queue": 1, "job type": 2, "worker": 3, "host": 4, "code version": 5}
    shared = {
        trait: Counter(str(row[place]) for row in found if row[place]).most_common(5)
        for trait, place in traits.items()
    }
    return GroupDetail(
        len(found),
        {trait: values for trait, values in shared.items() if values},
        [row[0] for row in found[:5]],
        oldest,
        _sample(job),
    )


def _group(
    fingerprint: str | None,
    jobs: int,
    newest: int,
    oldest: int,
    lately: int,
    error_class: str | None,
    job_type: str,
    queue: str,
    message: str,
    payload: str | None,
    *seen: Any,
) -> ErrorGroup:
    known = None if payload is None else json.loads(payload)
    text = redacted_start(message, payload=known, job_type=job_type)[:_MESSAGE]
    return ErrorGroup(
        fingerprint or "", jobs, newest, oldest, lately, error_class or "", job_type, queue, text, *seen
    )


def _sample(job: Job | None) -> dict[str, Any]:
    errors = job.errors if job is not None and isinstance(job.errors, list) else []
    if job is None or not errors or not isinstance(errors[-1], dict):
        return {}
    entry: dict[str, Any] = redacted_errors(errors[-1], payload=job.payload, job_type=job.job_type)
    return entry
