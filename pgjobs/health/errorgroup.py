"""One cause of failures from near: since when, what its jobs share, what else fails in the same job type."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.health.errors import HOURS, JOBS_COUNTED, RETRIED
from pgjobs.health.reading import Reader
from pgjobs.queue.models import Job
from pgjobs.queue.standing import OPEN, Standing, standing
from pgjobs.redaction import redacted_text, redacted_texts, rules_for

LOOKED = 300
"""Newest jobs of a group that are looked at."""
SHARED = 200
"""Those whose common traits are told."""
WAITING = 200
"""Rows at the head of a queue that are looked at for further attempts."""

_BAD = "t.status IN ('dead', 'failed') AND t.discarded_at IS NULL"
_BY = "COALESCE(t.completed_by, t.errors -> -1 ->> 'worker') AS worker"
_SMALL_PAYLOAD = 1_000  # bytes; larger ones are not looked through for what they share
_LONGEST_VALUE = 60
_TRAITS = 5
_ENDS = 5
_WALKED, _SIBLINGS = 200, 10

# Each worker is looked up once, however many jobs ended with it.
_NEWEST = f"""
WITH job AS MATERIALIZED (
    SELECT t.id, t.status, t.queue, t.job_type, t.completed_at, {_BY},
           CASE WHEN pg_column_size(t.payload) <= {_SMALL_PAYLOAD} THEN t.payload::text END AS payload
    FROM pgjobs_job AS t WHERE {_BAD} AND {{which}} ORDER BY t.fingerprint, t.id DESC LIMIT %(looked)s
),
worker AS MATERIALIZED (
    SELECT known.name, known.host, known.code_version FROM (SELECT DISTINCT worker FROM job) AS named
    JOIN pgjobs_worker AS known ON known.name = named.worker
)
SELECT job.id, job.queue, job.job_type, job.worker, worker.host, worker.code_version, job.completed_at, job.payload,
       job.status
FROM job LEFT JOIN worker ON worker.name = job.worker
ORDER BY job.id DESC"""  # noqa: S608 - constants

_HEAD = f"""
WITH counted AS MATERIALIZED (
    SELECT count(*) AS jobs FROM (
        SELECT 1 FROM pgjobs_job AS t WHERE {_BAD} AND {{which}} LIMIT %(jobs)s) AS each
)
SELECT statement_timestamp(), counted.jobs, oldest.id, LEAST(oldest.completed_at, known.ended_at),
       CASE WHEN {RETRIED} THEN '' ELSE COALESCE(worker.code_version, '') END
FROM counted
CROSS JOIN (SELECT t.id, t.completed_at, {_BY} FROM pgjobs_job AS t
            WHERE {_BAD} AND {{which}} ORDER BY t.fingerprint DESC, t.id LIMIT %(ends)s) AS oldest
LEFT JOIN pgjobs_worker AS worker ON worker.name = oldest.worker
LEFT JOIN pgjobs_cause AS known ON known.fingerprint = %(fingerprint)s
ORDER BY oldest.id"""  # noqa: S608 - constants

_RETRYING = """
SELECT count(*) FILTER (WHERE attempt_count > 0 AND fingerprint = %(fingerprint)s), count(*) FROM (
    SELECT t.fingerprint, t.attempt_count FROM pgjobs_job AS t
    WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue = %(queue)s
    ORDER BY t.priority, t.available_at, t.id LIMIT %(waiting)s) AS head"""

# The newest job of each fingerprint, a probe of the index each; the type of job is part of what a fingerprint is of.
_ALIKE = f"""
WITH RECURSIVE walk AS (
    (SELECT t.fingerprint, t.job_type, t.error_class, t.completed_at, 1 AS place FROM pgjobs_job AS t
     WHERE {_BAD} AND t.fingerprint IS NOT NULL ORDER BY t.fingerprint, t.id DESC LIMIT 1)
    UNION ALL
    SELECT further.*, walk.place + 1 FROM walk CROSS JOIN LATERAL (
        SELECT t.fingerprint, t.job_type, t.error_class, t.completed_at FROM pgjobs_job AS t
        WHERE {_BAD} AND t.fingerprint > walk.fingerprint ORDER BY t.fingerprint, t.id DESC LIMIT 1) AS further
    WHERE walk.place < %(walked)s
)
SELECT fingerprint, COALESCE(error_class, ''), completed_at FROM walk
WHERE job_type = %(job_type)s AND fingerprint IS DISTINCT FROM %(fingerprint)s
ORDER BY completed_at DESC LIMIT %(siblings)s"""  # noqa: S608 - constants


# What has ended, or has been met lately, or somebody has said something of.
_HEARD_OF = f"""
SELECT EXISTS (SELECT FROM pgjobs_job AS t WHERE {_BAD} AND {{which}})
    OR EXISTS (SELECT FROM pgjobs_cause WHERE fingerprint = %(fingerprint)s)
    OR EXISTS (SELECT FROM pgjobs_acknowledgement WHERE fingerprint = %(fingerprint)s)"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """What is told of one cause. The traits are those of its newest jobs."""

    fingerprint: str
    at: dt.datetime
    """The database's clock."""
    jobs: int
    """One above ``JOBS_COUNTED`` means "and more"."""
    looked_at: int
    """Newest jobs that ``hours`` are of; :data:`LOOKED` means that there may be more."""
    hours: tuple[int, ...]
    """Those that ended in each of the last 24 hours, the present one first."""
    error_class: str
    job_type: str
    queue: str
    message: str
    """Without secrets."""
    first_seen: dt.datetime | None
    last_seen: dt.datetime | None
    first_version: str
    """The code on which the oldest job ended; empty when it is not known (any more)."""
    retrying: int
    """Jobs that failed by it and wait for a further attempt, among those of :data:`WAITING` rows of its queue."""
    retrying_is_cut: bool
    shared: dict[str, list[tuple[str, int]]]
    """Trait ("queue", "worker", "code version", "payload tenant") -> values with their number, most first."""
    shared_of: int
    newest_ids: list[int]
    oldest_ids: list[int]
    sample: dict[str, Any]
    """The newest job's last entry of errors, without secrets."""
    sample_attempts: tuple[int, int]
    """Attempts of that job, and its budget."""
    statuses: list[str]
    """Among the newest, the most frequent first: "dead", "failed"."""
    siblings: list[tuple[str, str, dt.datetime | None]]
    """Other causes in the same job type: fingerprint, class, last seen."""
    standing: Standing | None

    @property
    def state(self) -> str:
        """ "open", "acknowledged" or "muted"."""
        return self.standing.state if self.standing else OPEN

    @property
    def is_cut(self) -> bool:
        """Whether it may have more jobs than were looked at."""
        return self.looked_at >= LOOKED


def heard_of(fingerprint: str, *, using: str | None = None) -> bool:
    """Whether a cause is there, or was lately: one that was cleared is told from one that never was.

    Raises what the database raises.
    """
    sql = _HEARD_OF.format(which=_which(fingerprint))
    ((known,),) = rows(using or get_settings().database, sql, {"fingerprint": fingerprint})
    return bool(known)


def _which(fingerprint: str) -> str:
    return "t.fingerprint = %(fingerprint)s" if fingerprint else "t.fingerprint IS NULL"


def group_detail(fingerprint: str, *, using: str | None = None) -> GroupDetail | None:
    """One group; None when no job has that fingerprint (any more). Raises what the database raises."""
    using = using or get_settings().database
    which = _which(fingerprint)
    with Reader(using) as reader:
        newest = reader.ask(_NEWEST.format(which=which), fingerprint=fingerprint, looked=LOOKED)
        head = reader.ask(
            _HEAD.format(which=which), fingerprint=fingerprint, jobs=JOBS_COUNTED + 1, ends=_ENDS
        )
        if not newest or not head:
            return None
        job = reader.within(lambda: Job._base_manager.using(using).filter(pk=newest[0][0]).first())
        around = _around(reader, fingerprint, *newest[0][1:3])
    at, jobs, _, first_seen, first_version = head[0]
    ended = [row[6] for row in newest if row[6]]
    return GroupDetail(
        fingerprint=fingerprint,
        at=at,
        jobs=jobs,
        looked_at=len(newest),
        hours=_by_hour(at, ended),
        error_class=(job.error_class if job else "") or "",
        message=_message(job),
        first_seen=first_seen,
        last_seen=max(ended, default=None),
        first_version=first_version,
        shared=_shared(newest[:SHARED], newest[0][2]),
        shared_of=len(newest[:SHARED]),
        newest_ids=[row[0] for row in newest[:_ENDS]],
        oldest_ids=[row[2] for row in head],
        sample=_sample(job),
        sample_attempts=(job.attempt_count, job.max_attempts) if job else (0, 0),
        statuses=[status for status, _ in Counter(row[8] for row in newest).most_common()],
        **around,
    )


def _around(reader: Reader, fingerprint: str, queue: str, job_type: str) -> dict[str, Any]:
    """What is not of its dead jobs: further attempts, other causes, and who knows of it."""
    ((retrying, waiting),) = reader.ask(_RETRYING, fingerprint=fingerprint, queue=queue, waiting=WAITING)
    siblings = reader.ask(
        _ALIKE, fingerprint=fingerprint, job_type=job_type, walked=_WALKED, siblings=_SIBLINGS
    )
    known = (
        reader.within(lambda: standing([fingerprint], using=reader.using)).get(fingerprint)
        if fingerprint
        else None
    )
    return {
        "queue": queue,
        "job_type": job_type,
        "retrying": retrying,
        "retrying_is_cut": waiting >= WAITING,
        "siblings": [(name, error, seen) for name, error, seen in siblings],
        "standing": known,
    }


def _by_hour(at: dt.datetime, ended: Sequence[dt.datetime]) -> tuple[int, ...]:
    counts = Counter(max(int((at - each).total_seconds() // 3_600), 0) for each in ended)
    return tuple(counts[hour] for hour in range(HOURS))


def _shared(rows: Sequence[tuple[Any, ...]], job_type: str) -> dict[str, list[tuple[str, int]]]:
    traits = {"queue": 1, "job type": 2, "worker": 3, "host": 4, "code version": 5}
    shared = {
        trait: Counter(str(row[place]) for row in rows if row[place]).most_common(5)
        for trait, place in traits.items()
    }
    shared |= _of_payloads([row[7] for row in rows if row[7]], job_type)
    return {trait: values for trait, values in shared.items() if values}


def _of_payloads(payloads: Sequence[str], job_type: str) -> dict[str, list[tuple[str, int]]]:
    """Arguments of which most jobs have the same value, such as a tenant; none that is secret."""
    rules, values = rules_for(job_type=job_type), dict[str, Counter[str]]()
    for payload in map(json.loads, payloads):
        for name, value in payload.items() if isinstance(payload, dict) else ():
            text = value if isinstance(value, str) else json.dumps(value)
            if isinstance(value, dict | list) or value is None or len(text) > _LONGEST_VALUE:
                continue
            if not rules.hides((name,)):
                values.setdefault(name, Counter())[text] += 1
    common = {name: count.most_common(2) for name, count in values.items()}
    most = sorted(common.items(), key=lambda each: -each[1][0][1])
    return {
        f"payload {name[:_LONGEST_VALUE]}": told
        for name, told in most[:_TRAITS]
        if told[0][1] > max(1, len(payloads) // 2)
    }


def _message(job: Job | None) -> str:
    if job is None:
        return ""
    return redacted_text(job.last_error or "", payload=job.payload, job_type=job.job_type)


def _sample(job: Job | None) -> dict[str, Any]:
    errors = job.errors if job is not None and isinstance(job.errors, list) else []
    if job is None or not errors or not isinstance(errors[-1], dict):
        return {}
    entry: dict[str, Any] = redacted_texts(errors[-1], payload=job.payload, job_type=job.job_type)
    return entry
