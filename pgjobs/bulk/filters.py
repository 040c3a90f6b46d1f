"""Which jobs a bulk operation is about: a filter over columns, and the statements that find them a window at a time."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pgjobs.codec import check_text
from pgjobs.connections import rows
from pgjobs.exceptions import InvalidOption
from pgjobs.queue.acting import VerbOutcome
from pgjobs.queue.control import cancel, discard, retry
from pgjobs.queue.models import Job
from pgjobs.queue.states import CANCELLABLE, DISCARDABLE, RETRYABLE, TERMINAL, JobStatus

WINDOW = 20_000
"""Rows that one statement looks at."""
COUNT_LIMIT = 10_000
"""The highest exact count of a preview."""
SAMPLE = 20

_COUNTED = 200_000  # rows of a status that a preview looks at, the newest first


@dataclass(frozen=True, slots=True)
class BulkVerb:
    """A verb that can be done to many."""

    act: Callable[..., list[VerbOutcome]]
    done: str
    sources: frozenset[JobStatus]
    options: frozenset[str] = frozenset()


VERBS = {
    "retry": BulkVerb(
        retry, "retried", RETRYABLE, frozenset({"max_attempts", "more_attempts", "priority", "queue"})
    ),
    "cancel": BulkVerb(cancel, "cancelled", CANCELLABLE),
    "discard": BulkVerb(discard, "discarded", DISCARDABLE),
}

_COLUMNS = {field.column for field in Job._meta.concrete_fields}
KEYS: tuple[str, ...] = tuple(
    name for name in ("status", "queue", "job_type", "fingerprint", "error_class") if name in _COLUMNS
)
"""What a filter may name."""


def checked(given: Mapping[str, Any], verb: str) -> dict[str, str]:
    """The filter, without what is left open. Raises :class:`InvalidOption`."""
    if verb not in VERBS:
        raise InvalidOption("verb", verb, f"give one of {', '.join(VERBS)}.")
    found = {}
    for key, value in given.items():
        if key not in KEYS:
            near = difflib.get_close_matches(str(key), KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"a filter knows {', '.join(KEYS)}."
            raise InvalidOption("filter", key, hint)
        if value in (None, ""):
            continue
        if not isinstance(value, str):
            raise InvalidOption(key, value, "give text.")
        found[key] = check_text(value, key)
    allowed = sorted(VERBS[verb].sources)
    if found.get("status") not in allowed:
        raise InvalidOption(
            "status", found.get("status"), f"to {verb} in bulk, give one of {', '.join(allowed)}."
        )
    return found


def in_words(given: Mapping[str, str]) -> str:
    """The filter for people."""
    return ", ".join(f"{name.replace('_', ' ')} {given[name]}" for name in KEYS if name in given)


@dataclass(frozen=True, slots=True)
class Found:
    """What one window holds, and up to where it was looked at."""

    ids: list[int]
    cursor_at: dt.datetime | None
    cursor_id: int
    exhausted: bool
    """Whether nothing comes after it."""


# Ended rows in the order in which they ended, by the index of their status; what ends later is beyond ``before``,
# so that a job that dies again is not met again.
_ENDED = """
SELECT t.id, t.completed_at AS at, {columns} FROM pgjobs_job AS t
WHERE t.status = '{status}' AND t.discarded_at IS NULL AND t.completed_at <= %(before)s::timestamptz
  AND t.completed_at >= COALESCE(%(cursor_at)s::timestamptz, '-infinity')
  AND (t.completed_at, t.id) > (COALESCE(%(cursor_at)s::timestamptz, '-infinity'), %(cursor_id)s)
ORDER BY t.completed_at, t.id LIMIT {window}"""

# Live rows by the primary key, whatever their status: no index holds them in an order that stands still.
_LIVE = """
SELECT t.id, '-infinity'::timestamptz AS at, {columns} FROM pgjobs_job AS t
WHERE t.id > %(cursor_id)s AND t.id <= %(upper_id)s ORDER BY t.id LIMIT {window}"""

_FIND = """
WITH looked AS MATERIALIZED ({looked}),
picked AS MATERIALIZED (
    SELECT id, at FROM looked WHERE {condition} AND id <= %(upper_id)s ORDER BY at, id LIMIT %(limit)s
)
SELECT (SELECT array_agg(id ORDER BY at, id) FROM picked), (SELECT count(*) FROM looked),
       NULLIF(last.at, '-infinity'), last.id
FROM (
    SELECT at, id FROM (SELECT * FROM picked ORDER BY at DESC, id DESC LIMIT 1) AS of_picked
    WHERE (SELECT count(*) FROM picked) = %(limit)s
    UNION ALL
    SELECT at, id FROM (SELECT * FROM looked ORDER BY at DESC, id DESC LIMIT 1) AS of_looked
    WHERE (SELECT count(*) FROM picked) < %(limit)s
) AS last"""


def find(
    given: Mapping[str, str],
    *,
    upper_id: int,
    before: dt.datetime,
    cursor_at: dt.datetime | None,
    cursor_id: int,
    limit: int,
    window: int = WINDOW,
    using: str,
) -> Found:
    """Up to ``limit`` ids after the cursor, without locking them. One bounded statement."""
    status = JobStatus(given["status"])
    source = _ENDED if status in TERMINAL else _LIVE
    looked = source.format(columns=_looked_columns(), status=status.value, window=window)
    sql = _FIND.format(looked=looked, condition=_condition(given))
    params = {
        **given,
        "upper_id": upper_id,
        "before": before,
        "cursor_at": cursor_at,
        "cursor_id": cursor_id,
        "limit": limit,
    }
    found = rows(using, sql, params)
    if not found:
        return Found([], cursor_at, cursor_id, True)
    ((ids, looked_at, at, last_id),) = found
    ids = ids or []
    return Found(ids, at, last_id, len(ids) < limit and looked_at < window)


_SOURCES = {
    "ended": """SELECT * FROM pgjobs_job AS t WHERE t.status = '{status}' AND t.discarded_at IS NULL
        ORDER BY t.completed_at DESC LIMIT {most}""",
    "running": "SELECT * FROM pgjobs_job AS t WHERE t.status = 'running' LIMIT {most}",
    # Each half in the words of its partial index.
    "pending": """
        (SELECT * FROM pgjobs_job AS t WHERE t.status = 'pending' AND t.crash_count = 0 {queue} LIMIT {most})
        UNION ALL
        (SELECT * FROM pgjobs_job AS t WHERE t.status = 'pending' AND t.crash_count > 0 LIMIT {most})""",
}

_COUNT = """
SELECT queue, job_type, count(*), (array_agg(id ORDER BY id DESC))[1:{sample}] FROM (
    SELECT id, queue, job_type FROM ({source}) AS looked WHERE {condition} AND id <= %(upper_id)s LIMIT {limit}
) AS matching GROUP BY queue, job_type ORDER BY count(*) DESC, queue, job_type"""


def count(given: Mapping[str, str], *, upper_id: int, using: str) -> list[tuple[str, str, int, list[int]]]:
    """(queue, job type, jobs, newest ids) of the first matches, at most :data:`COUNT_LIMIT` + 1 in all."""
    status = JobStatus(given["status"])
    queue = "AND t.queue = %(queue)s" if "queue" in given else ""
    source = _SOURCES["ended" if status in TERMINAL else status.value]
    source = source.format(status=status.value, most=_COUNTED, queue=queue)
    sql = _COUNT.format(source=source, condition=_condition(given), limit=COUNT_LIMIT + 1, sample=SAMPLE)
    found = rows(using, sql, {**given, "upper_id": upper_id})
    return [(queue, job_type, jobs, list(ids)) for queue, job_type, jobs, ids in found]


def _looked_columns() -> str:
    return ", ".join(f"t.{name}" for name in (*KEYS, "discarded_at"))


def _condition(given: Mapping[str, str]) -> str:
    """Over columns of one job. What is discarded is out of sight, for bulk operations too."""
    parts = [f"{name} = %({name})s" for name in KEYS if name in given]
    return " AND ".join([*parts, "discarded_at IS NULL"])
