"""What ended badly, what needs a person, and what holds the database back: reads for single rules."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgjobs.health.reading import Reader
from pgjobs.redaction import PAYLOAD_READ, TEXT_READ

LEAST_DEAD, TIMES_USUAL = 10, 10
"""So many jobs of a type in the last hour, and so many times the usual number, are worth a problem."""

_SAMPLE = 300  # jobs of the last hour, of either status, that are told apart by cause
_LOOKED = 1_000  # the same where what somebody knows of must be passed over
_CAUSES = 20
OVERDUE_LIMIT = 1_000
"""Waits past their time that are looked at, the oldest."""
_HEAD = 100  # rows at the head of a queue: what nobody claims stays there

_LATELY = """
(SELECT looked.* FROM (
    SELECT t.id, t.status, t.fingerprint FROM pgjobs_job AS t
    WHERE t.status = '{status}' AND t.discarded_at IS NULL
      AND t.completed_at > statement_timestamp() - interval '1 hour'
    ORDER BY t.completed_at DESC LIMIT %(looked)s) AS looked
 WHERE COALESCE(looked.fingerprint, '') <> ALL(%(known)s::text[]) LIMIT %(sample)s)"""

_NEW_CAUSES = f"""
WITH lately AS MATERIALIZED ({_LATELY.format(status="dead")} UNION ALL {_LATELY.format(status="failed")}),
cut AS (SELECT EXISTS (SELECT 1 FROM lately GROUP BY status HAVING count(*) >= %(sample)s) AS is_cut),
cause AS MATERIALIZED (
    SELECT fingerprint, count(*) AS jobs, max(id) AS newest FROM lately WHERE fingerprint IS NOT NULL
    GROUP BY fingerprint ORDER BY count(*) DESC, fingerprint LIMIT %(causes)s
)
SELECT cause.fingerprint, cause.jobs, cut.is_cut, first.at, sample.job_type, sample.error_class,
       left(sample.last_error, {TEXT_READ}), sample.queue,
       CASE WHEN pg_column_size(sample.payload) <= {PAYLOAD_READ} THEN sample.payload END
FROM cause
CROSS JOIN cut
CROSS JOIN LATERAL (
    SELECT t.completed_at FROM pgjobs_job AS t
    WHERE t.status IN ('dead', 'failed') AND t.discarded_at IS NULL
      AND t.fingerprint = cause.fingerprint ORDER BY t.id LIMIT 1) AS oldest
LEFT JOIN pgjobs_cause AS known ON known.fingerprint = cause.fingerprint
CROSS JOIN LATERAL (SELECT LEAST(oldest.completed_at, known.ended_at) AS at) AS first
JOIN pgjobs_job AS sample ON sample.id = cause.newest
WHERE first.at > statement_timestamp() - interval '1 hour'
ORDER BY cause.jobs DESC, cause.fingerprint"""  # noqa: S608 - the template above

# The figures per minute know no causes, so what somebody knows of is taken off by its share of the latest.
_KNOWN_SHARES = """
SELECT job_type, count(*) FILTER (WHERE fingerprint = ANY(%(known)s::text[]))::float8 / count(*) FROM (
    SELECT t.job_type, t.fingerprint FROM pgjobs_job AS t
    WHERE t.status = 'dead' AND t.discarded_at IS NULL AND t.completed_at > statement_timestamp() - interval '1 hour'
    ORDER BY t.completed_at DESC LIMIT %(looked)s) AS lately
WHERE job_type = ANY(%(job_types)s::text[]) GROUP BY job_type"""

# Few types die much: what is usual is asked for those alone. It is of whole hours that are added up, and of the minutes
# before the first of them, and after the last that ended before the last hour began.
_DEAD_RATES = f"""
WITH lately AS MATERIALIZED (
    SELECT job_type, min(queue) AS queue, sum(dead)::bigint AS jobs FROM pgjobs_minute
    WHERE minute > statement_timestamp() - interval '1 hour' AND dead > 0
    GROUP BY job_type HAVING sum(dead) >= {LEAST_DEAD}
),
kept AS MATERIALIZED (
    SELECT min(hour) AS from_hour, CASE WHEN max(hour) IS NOT NULL THEN LEAST(
        max(hour) + interval '1 hour',
        date_bin('1 hour', statement_timestamp() - interval '1 hour', 'epoch')) END AS to_hour
    FROM pgjobs_hour WHERE hour > statement_timestamp() - interval '25 hours' AND EXISTS (SELECT FROM lately)
),
before AS (
    SELECT job_type, dead FROM pgjobs_hour
    WHERE hour >= (SELECT from_hour FROM kept) AND hour < (SELECT to_hour FROM kept) AND dead > 0
    UNION ALL
    SELECT job_type, dead FROM pgjobs_minute
    WHERE minute > statement_timestamp() - interval '25 hours' AND dead > 0
      AND minute < (SELECT LEAST(from_hour, statement_timestamp() - interval '1 hour' + interval '1 us') FROM kept)
    UNION ALL
    SELECT job_type, dead FROM pgjobs_minute
    WHERE minute >= (SELECT GREATEST(from_hour, to_hour) FROM kept) AND dead > 0
      AND minute <= statement_timestamp() - interval '1 hour'
)
SELECT * FROM (
    SELECT lately.job_type, lately.queue, lately.jobs, (sum(before.dead) / 24)::float8 AS usual
    FROM lately JOIN before USING (job_type) WHERE EXISTS (SELECT FROM lately)
    GROUP BY lately.job_type, lately.queue, lately.jobs
) AS each WHERE usual > 0 AND jobs > {TIMES_USUAL} * usual
ORDER BY jobs DESC, job_type LIMIT %(causes)s"""  # noqa: S608 - constants

_UNKNOWN_TYPES = """
SELECT named.queue, head.kind, head.name, count(*), min(head.available_at)
FROM unnest(%(queues)s::text[]) AS named(queue) CROSS JOIN LATERAL (
    (SELECT 'job_type' AS kind, t.job_type AS name, t.available_at FROM pgjobs_job AS t
     WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue = named.queue
     ORDER BY t.priority, t.available_at, t.id LIMIT %(head)s)
    UNION ALL
    (SELECT 'workflow', t.workflow_name, t.available_at FROM pgjobs_execution AS t
     WHERE t.status = 'enqueued' AND t.crash_count = 0 AND t.queue = named.queue
     ORDER BY t.priority, t.available_at, t.id LIMIT %(head)s)
) AS head
WHERE head.available_at <= statement_timestamp()
GROUP BY named.queue, head.kind, head.name ORDER BY named.queue, head.name, head.kind"""

_WORKFLOWS = f"""
SELECT open.found, open.oldest, overdue.found, overdue.since, overdue.id, overdue.others, overdue.others_since,
       overdue.other_id, paused.found, paused.since, paused.id,
       left(first.pause_reason, {TEXT_READ}), first.workflow_name,
       CASE WHEN pg_column_size(first.input) <= {PAYLOAD_READ} THEN first.input END
FROM (SELECT (SELECT count(*) FROM (SELECT 1 FROM pgjobs_wait AS t
                                    WHERE t.resolved_at IS NULL AND t.kind = 'approval'
                                    ORDER BY t.created_at LIMIT %(most)s) AS counted) AS found,
             (SELECT min(created_at) FROM pgjobs_wait
              WHERE resolved_at IS NULL AND kind = 'approval') AS oldest) AS open
CROSS JOIN (SELECT count(*) FILTER (WHERE asked) AS found, min(wake_at) FILTER (WHERE asked) AS since,
                   (array_agg(execution_id ORDER BY wake_at, id) FILTER (WHERE asked))[1] AS id,
                   count(*) FILTER (WHERE NOT asked) AS others, min(wake_at) FILTER (WHERE NOT asked) AS others_since,
                   (array_agg(execution_id ORDER BY wake_at, id) FILTER (WHERE NOT asked))[1] AS other_id FROM (
        SELECT t.kind = 'approval' AS asked, t.wake_at, t.execution_id, t.id FROM pgjobs_wait AS t
        WHERE t.resolved_at IS NULL AND t.wake_at IS NOT NULL
          AND t.wake_at < statement_timestamp() - make_interval(secs => %(grace)s)
        ORDER BY t.wake_at, t.id LIMIT {OVERDUE_LIMIT} + 1) AS due) AS overdue
CROSS JOIN (SELECT count(*) AS found, min(updated_at) AS since, (array_agg(id ORDER BY updated_at))[1] AS id FROM (
        SELECT t.id, t.updated_at FROM pgjobs_execution AS t
        WHERE t.status = 'paused' ORDER BY t.created_at LIMIT 1000) AS held) AS paused
LEFT JOIN pgjobs_execution AS first ON first.id = paused.id"""  # noqa: S608 - constants

# Of bulk operations, a slow pace is no standstill: three of its steps may pass.
_BURDENS_AND_BULKS = """
SELECT 'transaction', pid::text, xact_start, application_name, NULL::int, NULL::int FROM (
    SELECT pid, xact_start, application_name FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
      AND xact_start < statement_timestamp() - make_interval(secs => %(seconds)s)
    ORDER BY xact_start LIMIT 1) AS oldest
UNION ALL
SELECT 'rows', relname::text, GREATEST(last_vacuum, last_autovacuum),
       to_char(100.0 * n_dead_tup / (n_live_tup + n_dead_tup), 'FM990'), NULL, NULL
FROM pg_stat_all_tables
WHERE relid IN (to_regclass('pgjobs_job'), to_regclass('pgjobs_execution'), to_regclass('pgjobs_wait'))
  AND n_dead_tup > 10000 AND n_dead_tup > 0.2 * (n_live_tup + n_dead_tup)
  AND COALESCE(GREATEST(last_vacuum, last_autovacuum), '-infinity') < statement_timestamp() - interval '1 hour'
UNION ALL
SELECT 'bulk', id::text, at, verb, done, total FROM (
    SELECT id, verb, COALESCE(progress_at, started_at, created_at) AS at, done, total, pace
    FROM pgjobs_bulkoperation WHERE state = 'running' ORDER BY id LIMIT 20) AS running
WHERE at < statement_timestamp() - make_interval(secs => GREATEST(%(bulk_seconds)s, 3 / pace))
ORDER BY 1, 3"""


@dataclass(frozen=True, slots=True)
class NewCause:
    """A fingerprint whose first job ended within the last hour, as far as is remembered."""

    fingerprint: str
    jobs: int
    more: bool
    """Whether only so many were looked at."""
    first_at: dt.datetime
    job_type: str
    error_class: str | None
    error: str
    """Its beginning, as it is stored."""
    queue: str
    payload: Any
    """None when it was too large to be read."""


@dataclass(frozen=True, slots=True)
class WaitingType:
    """A job type or a workflow among the first due rows of a queue."""

    queue: str
    kind: str
    """ "job_type" or "workflow"."""
    name: str
    rows: int
    oldest_at: dt.datetime


@dataclass(frozen=True, slots=True)
class WorkflowTrouble:
    """Open approvals, those past their time, and executions that a person must resume."""

    approvals: int
    """Counted up to a limit."""
    oldest_approval_at: dt.datetime | None
    overdue: int
    overdue_since: dt.datetime | None
    overdue_id: int | None
    waits: int
    """Other waits past their time; these and the approvals together are counted up to ``OVERDUE_LIMIT``."""
    waits_since: dt.datetime | None
    waits_id: int | None
    """An execution, as the other two."""
    paused: int
    paused_since: dt.datetime | None
    paused_id: int | None
    paused_reason: str | None
    """Of the first of them, as it is stored."""
    paused_workflow: str | None
    paused_input: Any
    """None when it was too large to be read."""


@dataclass(frozen=True, slots=True)
class StuckBulk:
    """A bulk operation that runs and does not move."""

    id: int
    verb: str
    since: dt.datetime
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Burden:
    """An old transaction, or a table full of dead rows."""

    kind: str
    """"transaction" or "rows"."""
    name: str
    """Server process, or table."""
    since: dt.datetime | None
    """Begun, or last vacuumed."""
    detail: str


def read_new_causes(reader: Reader, *, known: Sequence[str] = ()) -> list[NewCause]:
    """Among the newest jobs that ended badly in the last hour; the most frequent first.

    ``known`` are fingerprints that are passed over, since somebody knows of them.
    """
    looked = _LOOKED if known else _SAMPLE
    found = reader.ask(_NEW_CAUSES, sample=_SAMPLE, looked=looked, known=list(known), causes=_CAUSES)
    return [NewCause(*_with_json(row)) for row in found]


def read_dead_rates(reader: Reader, *, known: Sequence[str] = ()) -> list[tuple[str, str, int, float]]:
    """Job types with ten times as many dead in the last hour as usual: type, queue, number, usual number.

    Of the number is left out what died of ``known`` fingerprints.
    """
    found = [(name, queue, n, usual) for name, queue, n, usual in reader.ask(_DEAD_RATES, causes=_CAUSES)]
    if not found or not known:
        return found
    job_types = [name for name, *_ in found]
    shares = dict(reader.ask(_KNOWN_SHARES, known=list(known), job_types=job_types, looked=_LOOKED))
    left = [(name, queue, round(n * (1 - shares.get(name, 0.0))), usual) for name, queue, n, usual in found]
    return [each for each in left if each[2] >= LEAST_DEAD and each[2] > TIMES_USUAL * each[3]]


def read_waiting_types(reader: Reader, queues: list[str]) -> list[WaitingType]:
    """What stands at the head of these queues."""
    if not queues:
        return []
    return [WaitingType(*row) for row in reader.ask(_UNKNOWN_TYPES, queues=queues, head=_HEAD)]


def read_workflows(reader: Reader, *, grace: float, most: int) -> WorkflowTrouble:
    """``grace`` seconds after its time an approval is overdue: until then a sweep may be on its way.

    Open approvals are counted up to ``most``.
    """
    (row,) = reader.ask(_WORKFLOWS, grace=grace, most=most)
    return WorkflowTrouble(*_with_json(row))


def read_burdens_and_bulks(
    reader: Reader, *, seconds: float, bulk_seconds: float
) -> tuple[list[Burden], list[StuckBulk]]:
    """What the database carries, and bulk operations that run and have not moved for ``bulk_seconds``.

    The first are transactions older than ``seconds``, as far as the role may see them, and tables that vacuum does not
    clean.
    """
    found = reader.ask(_BURDENS_AND_BULKS, seconds=seconds, bulk_seconds=bulk_seconds)
    bulks = [
        StuckBulk(int(pk), verb, at, done, total)
        for kind, pk, at, verb, done, total in found
        if kind == "bulk"
    ]
    return [Burden(*row[:4]) for row in found if row[0] != "bulk"], bulks


def _with_json(row: tuple[Any, ...]) -> list[Any]:
    """The row with its last column, JSON as text, as a value."""
    *facts, text = row
    return [*facts, None if text is None else json.loads(text)]
