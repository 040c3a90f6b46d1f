"""Dead and failed jobs by cause: how many causes, since when, on which version first, and who knows of them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.health.reading import Reader
from pgjobs.queue.standing import OPEN, Standing, standing
from pgjobs.redaction import PAYLOAD_READ, TEXT_READ, redacted_start

GROUPS = 200
"""Groups that are told; where there are more, only the newest :data:`NEWEST` jobs are looked at."""
NEWEST = 5_000
JOBS_COUNTED = 1_000
"""A group's jobs are counted so far."""
HOURS = 24
"""The last hours in which failures are counted one by one."""

_BAD = "t.status IN ('dead', 'failed') AND t.discarded_at IS NULL"
_LATELY_LIMIT = 750
_MESSAGE = 500  # characters that are told

RETRIED = "COALESCE(known.ended_at < oldest.completed_at - interval '1 minute', false)"
"""SQL: the oldest job has ended again since its cause was first seen; on which version that was is not known."""

# One row at least: the clock and the newest code, with no cause beside it where there is none.
_TOLD = f"""
SELECT statement_timestamp(), deployed.version, deployed.began, reach.since, cause.* FROM reach
LEFT JOIN (SELECT code_version AS version, min(started_at) AS began FROM pgjobs_worker WHERE code_version <> ''
           GROUP BY code_version ORDER BY min(started_at) DESC, code_version LIMIT 1) AS deployed ON true
LEFT JOIN (
    SELECT found.newest, found.fingerprint, found.jobs, found.oldest, lately.hours, newest.error_class,
           newest.job_type, newest.queue, left(newest.last_error, {TEXT_READ}) AS error,
           CASE WHEN pg_column_size(newest.payload) <= {PAYLOAD_READ} THEN newest.payload END AS payload,
           CASE WHEN {RETRIED} THEN '' ELSE COALESCE(first.code_version, '') END,
           GREATEST(newest.completed_at, lately.latest) AS last_seen,
           LEAST(oldest.completed_at, known.ended_at)
    FROM found
    JOIN pgjobs_job AS newest ON newest.id = found.newest JOIN pgjobs_job AS oldest ON oldest.id = found.oldest
    LEFT JOIN pgjobs_cause AS known ON known.fingerprint = found.fingerprint
    LEFT JOIN pgjobs_worker AS first ON first.name = oldest.completed_by
    LEFT JOIN lately ON lately.fingerprint IS NOT DISTINCT FROM found.fingerprint) AS cause ON true
ORDER BY cause.last_seen DESC, cause.fingerprint"""  # noqa: S608 - constants

_LOOKED = """
looked AS MATERIALIZED (
    (SELECT t.id, t.status, t.fingerprint, t.completed_at FROM pgjobs_job AS t
     WHERE t.status = 'dead' AND t.discarded_at IS NULL {since}
     ORDER BY t.completed_at DESC LIMIT %(most)s)
    UNION ALL
    (SELECT t.id, t.status, t.fingerprint, t.completed_at FROM pgjobs_job AS t
     WHERE t.status = 'failed' AND t.discarded_at IS NULL {since}
     ORDER BY t.completed_at DESC LIMIT %(most)s)
),
reach AS (
    SELECT max(began) AS since FROM (
        SELECT min(completed_at) AS began FROM looked GROUP BY status HAVING count(*) >= %(most)s) AS cut
),
lately AS (
    SELECT fingerprint, max(latest) AS latest, jsonb_object_agg(hour, jobs)::text AS hours FROM (
        SELECT fingerprint, count(*) AS jobs, max(completed_at) AS latest,
               GREATEST(floor(extract(epoch FROM statement_timestamp() - completed_at) / 3600), 0)::int AS hour
        FROM looked WHERE completed_at > statement_timestamp() - interval '24 hours' GROUP BY fingerprint, 4
    ) AS each GROUP BY fingerprint
)"""
_OF_A_DAY = "AND t.completed_at > statement_timestamp() - interval '24 hours'"
_OF_AN_HOUR = "AND t.completed_at > statement_timestamp() - interval '1 hour'"
_COUNTED = f"""(SELECT count(*) AS jobs FROM (
        SELECT 1 FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint = {{of}}.fingerprint
        LIMIT %(jobs)s) AS each) AS counted"""  # noqa: S608 - a constant
_FIRST = f"""(SELECT t.id FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint = {{of}}.fingerprint
                        ORDER BY t.id LIMIT 1) AS oldest"""  # noqa: S608 - a constant

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
{_LOOKED.format(since=_OF_A_DAY)},
found AS (
    SELECT walk.fingerprint, counted.jobs, newest.id AS newest, oldest.id AS oldest FROM walk
    CROSS JOIN LATERAL {_COUNTED.format(of="walk")}
    CROSS JOIN LATERAL (SELECT t.id FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint = walk.fingerprint
                        ORDER BY t.id DESC LIMIT 1) AS newest
    CROSS JOIN LATERAL {_FIRST.format(of="walk")}
    UNION ALL
    SELECT NULL, count(*), max(id), min(id) FROM (
        SELECT t.id FROM pgjobs_job AS t WHERE {_BAD} AND t.fingerprint IS NULL
        ORDER BY t.fingerprint, t.id DESC LIMIT %(jobs)s) AS unmarked
    HAVING count(*) > 0
)
{_TOLD}"""  # noqa: S608 - constants

_GROUPS_OF_NEWEST = f"""
WITH {_LOOKED.format(since="")},
found AS (
    SELECT fingerprint, count(*) AS jobs, max(id) AS newest, min(id) AS oldest
    FROM looked GROUP BY fingerprint ORDER BY max(completed_at) DESC LIMIT %(groups)s
)
{_TOLD}"""  # noqa: S608 - constants

_MOST_LATELY = f"""
WITH {_LOOKED.format(since=_OF_AN_HOUR)},
worst AS (
    SELECT fingerprint, max(id) AS newest FROM looked
    WHERE fingerprint IS NOT NULL AND fingerprint <> ALL(%(known)s::text[])
    GROUP BY fingerprint ORDER BY count(*) DESC, fingerprint LIMIT %(groups)s
),
found AS (
    SELECT worst.fingerprint, counted.jobs, worst.newest, oldest.id AS oldest FROM worst
    CROSS JOIN LATERAL {_COUNTED.format(of="worst")}
    CROSS JOIN LATERAL {_FIRST.format(of="worst")}
)
{_TOLD}"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class Deployed:
    """The version of the code that was the last to begin, as far as workers are remembered."""

    version: str
    since: dt.datetime
    """The start of its first worker."""


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """All dead and failed jobs of one fingerprint. What is told of it is its newest job's."""

    fingerprint: str
    """Empty: jobs that ended before there were fingerprints, or were written by others."""
    jobs: int
    """One above ``JOBS_COUNTED`` means "and more"."""
    newest_id: int
    oldest_id: int
    hours: tuple[int, ...]
    """Jobs that ended in each of the last hours, the present one first."""
    error_class: str
    job_type: str
    queue: str
    message: str
    """Without secrets."""
    first_version: str
    """The code on which the oldest job ended; empty when it is not known (any more)."""
    last_seen: dt.datetime | None
    first_seen: dt.datetime | None
    """Of the jobs that are still in the table, or earlier: retrying them makes no cause younger."""
    standing: Standing | None = None

    @property
    def state(self) -> str:
        """ "open", "acknowledged" or "muted"."""
        return self.standing.state if self.standing else OPEN

    @property
    def last_hour(self) -> int:
        """Jobs that ended in it."""
        return self.hours[0]

    def is_new(self, deployed: Deployed | None) -> bool:
        """Whether it was first seen on the newest code; by the time where its version is not known."""
        if deployed is None:
            return False
        if self.first_version:
            return self.first_version == deployed.version
        return self.first_seen is not None and self.first_seen >= deployed.since


@dataclass(frozen=True, slots=True)
class ErrorGroups:
    """The groups, the latest first."""

    groups: list[ErrorGroup]
    complete: bool
    """Whether all dead and failed jobs were looked at, not only the newest."""
    at: dt.datetime
    """The database's clock."""
    deployed: Deployed | None
    counted_from: dt.datetime | None
    """Since when every end is in ``hours``; None: all of them are."""

    @property
    def last_hour_is_cut(self) -> bool:
        """Whether more ended in the last hour than were counted."""
        return self.counted_from is not None and self.at - self.counted_from < dt.timedelta(hours=1)

    def chosen(
        self,
        *,
        state: str = "all",
        queue: str | None = None,
        job_type: str | None = None,
        lately: bool = False,
        new: bool = False,
    ) -> list[ErrorGroup]:
        """Those that are in a state ("open", "acknowledged" with the muted ones, "all") and fit the rest."""
        return [
            group
            for group in self.groups
            if (state == "all" or (state == OPEN) == (group.state == OPEN))
            and (not queue or queue == group.queue)
            and (not job_type or job_type == group.job_type)
            and (group.last_hour or not lately)
            and (not new or group.is_new(self.deployed))
        ]


def error_groups(*, using: str | None = None) -> ErrorGroups:
    """Every cause of dead and failed jobs, as far as they can be told. Raises what the database raises."""
    using = using or get_settings().database
    with Reader(using) as reader:
        found = reader.ask(_GROUPS, groups=GROUPS, jobs=JOBS_COUNTED + 1, most=_LATELY_LIMIT)
        complete = len(found) <= GROUPS
        if not complete:
            found = reader.ask(_GROUPS_OF_NEWEST, groups=GROUPS, most=NEWEST // 2)
        known = reader.within(lambda: standing(using=using))
    return _groups(found, complete, known)


def worst_lately(most: int, *, known: Iterable[str] = (), using: str | None = None) -> ErrorGroups:
    """The open causes of the last hour with the most failures, the most first. ``known`` are left out."""
    with Reader(using or get_settings().database) as reader:
        found = reader.ask(
            _MOST_LATELY, groups=most, jobs=JOBS_COUNTED + 1, most=_LATELY_LIMIT, known=list(known)
        )
    groups = _groups(found, False, {})
    return replace(groups, groups=sorted(groups.groups, key=lambda group: -group.last_hour))


def _groups(found: list[tuple[Any, ...]], complete: bool, known: dict[str, Standing]) -> ErrorGroups:
    at, version, began, counted_from = found[0][:4]
    groups = [_group(known, *row[4:]) for row in found if row[4] is not None]
    deployed = Deployed(version, began) if version else None
    return ErrorGroups(groups, complete, at, deployed, counted_from)


def _group(
    known: dict[str, Standing],
    newest: int,
    fingerprint: str | None,
    jobs: int,
    oldest: int,
    hours: str | None,
    error_class: str | None,
    job_type: str,
    queue: str,
    message: str,
    payload: str | None,
    first_version: str,
    last_seen: dt.datetime | None,
    first_seen: dt.datetime | None,
) -> ErrorGroup:
    given = None if payload is None else json.loads(payload)
    text = redacted_start(message, payload=given, job_type=job_type)[:_MESSAGE]
    ended = json.loads(hours) if hours else {}
    by_hour = tuple(int(ended.get(str(hour), 0)) for hour in range(HOURS))
    name = fingerprint or ""
    return ErrorGroup(
        name,
        jobs,
        newest,
        oldest,
        by_hour,
        error_class or "",
        job_type,
        queue,
        text,
        first_version,
        last_seen,
        first_seen,
        known.get(name),
    )
