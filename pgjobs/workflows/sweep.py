"""The sweeper: ends waits whose time has come, and now and then looks for executions that nobody woke.

Any number of processes may sweep; each skips what another holds.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pgjobs.connections import rows
from pgjobs.workflows.batches import handle_all
from pgjobs.workflows.waits import children_ended, jobs_ended, wake

logger = logging.getLogger("pgjobs.workflows")

REPAIR_SECONDS = 60.0
"""Time between two looks of one process for what nobody woke. Such rows come from edits by hand, not from pgjobs."""

_AGAIN_SECONDS = 1.0

_DUE = """
SELECT id, wake_at::text AS written, execution_id FROM pgjobs_wait
WHERE resolved_at IS NULL AND wake_at IS NOT NULL AND wake_at <= statement_timestamp()
  AND (wake_at, id) > (%(wake_at)s::timestamptz, %(id)s)
ORDER BY wake_at, id LIMIT %(limit)s"""

_LOCK = """
SELECT id FROM pgjobs_execution WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED"""

# Compare-and-set: a decision, signal or settlement that came first has set resolved_at.
_TIME_OUT = """
UPDATE pgjobs_wait AS wait
SET resolved_at = clock_timestamp(),
    resolution = CASE wait.kind
        WHEN 'sleep' THEN '{"slept": true}'::jsonb
        WHEN 'approval' THEN jsonb_build_object(
            'approved', wait.on_timeout = 'approve', 'by', NULL, 'at', clock_timestamp(),
            'reason', 'timed out', 'data', NULL, 'timeout', true)
        ELSE '{"timeout": true}'::jsonb END,
    approved = CASE WHEN wait.kind = 'approval' AND wait.on_timeout <> 'raise'
                    THEN wait.on_timeout = 'approve' END,
    reason = CASE WHEN wait.kind = 'approval' THEN 'timed out' ELSE wait.reason END
WHERE wait.id = ANY(%(ids)s::bigint[]) AND wait.execution_id = ANY(%(locked)s::bigint[])
  AND wait.resolved_at IS NULL AND wait.wake_at <= statement_timestamp()
RETURNING wait.execution_id, wait.id"""

SECONDS_TO_WAIT_SQL = """(date_part('epoch', (SELECT min(wake_at) FROM pgjobs_wait
    WHERE resolved_at IS NULL AND wake_at IS NOT NULL)) - date_part('epoch', statement_timestamp()))"""
"""An SQL expression: seconds until the first wait is due, below 0 when it is overdue, null when none waits.

A difference of seconds, not of times, here and below: somebody may have written ``infinity`` or ``-infinity`` by hand.
"""

# The very first, and the first that is not overdue by a second: two probes of the partial index.
_SECONDS = f"""
SELECT {SECONDS_TO_WAIT_SQL},
       date_part('epoch', (SELECT min(wake_at) FROM pgjobs_wait
                           WHERE resolved_at IS NULL AND wake_at > statement_timestamp() - interval '1 second'))
       - date_part('epoch', statement_timestamp())"""  # noqa: S608 - a constant

# A window of the awaited jobs and children: has the target ended, or gone?
_TARGETS = """
SELECT awaited.target_id, awaited.kind,
       CASE awaited.kind
           WHEN 'job' THEN (SELECT status IN ('succeeded', 'failed', 'dead', 'cancelled')
                            FROM pgjobs_job WHERE id = awaited.target_id)
           ELSE (SELECT status IN ('succeeded', 'failed', 'cancelled')
                 FROM pgjobs_execution WHERE id = awaited.target_id) END
FROM (SELECT target_id, kind FROM pgjobs_wait
      WHERE resolved_at IS NULL AND target_id IS NOT NULL AND (target_id, kind) > (%(target)s, %(kind)s)
      ORDER BY target_id, kind LIMIT %(limit)s) AS awaited"""

_GONE = """
UPDATE pgjobs_wait
SET resolved_at = clock_timestamp(),
    resolution = jsonb_build_object('status', 'deleted', 'result', NULL,
                                    'error', format('%%s %%s was deleted before it ended', kind, target_id),
                                    CASE kind WHEN 'job' THEN 'job_id' ELSE 'execution_id' END, target_id)
WHERE target_id = ANY(%(targets)s::bigint[]) AND kind = %(kind)s AND resolved_at IS NULL
  AND execution_id = ANY(%(locked)s::bigint[])
RETURNING execution_id, id"""

_LOCK_WAITERS = """
SELECT id FROM pgjobs_execution
WHERE id IN (SELECT execution_id FROM pgjobs_wait
             WHERE target_id = ANY(%(targets)s::bigint[]) AND kind = %(kind)s AND resolved_at IS NULL)
ORDER BY id FOR UPDATE SKIP LOCKED"""

# A window of the waiting executions, each with the last thing it asked for.
_WAITING = """
SELECT waiting.created_at, waiting.id FROM pgjobs_execution AS waiting
WHERE status = 'waiting' AND created_at >= %(created_at)s::timestamptz
  AND (created_at, id) > (%(created_at)s::timestamptz, %(id)s)
ORDER BY created_at, id LIMIT %(limit)s"""

_UNWOKEN = """
SELECT waiting.id, latest.id FROM pgjobs_execution AS waiting CROSS JOIN LATERAL (
    SELECT wait.id, wait."group", wait.resolved_at FROM pgjobs_wait AS wait
    WHERE wait.execution_id = waiting.id ORDER BY wait.id DESC LIMIT 1) AS latest
WHERE waiting.id = ANY(%(ids)s::bigint[]) AND waiting.status = 'waiting'
  AND (latest.resolved_at IS NOT NULL OR latest."group" <> '')"""

_LOCK_EXECUTIONS = """
SELECT id FROM pgjobs_execution WHERE id = ANY(%(ids)s::bigint[]) AND status = 'waiting'
ORDER BY id FOR UPDATE SKIP LOCKED"""

_BEGINNING = dt.datetime.min.replace(year=2, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a round of repairs has come; a round goes through everything, a window at a time."""

    target: tuple[int, str] = (-1, "")
    waiting: tuple[dt.datetime, int] = (_BEGINNING, 0)


_rounds: dict[str, tuple[float, Position]] = {}
"""By database: when this process repairs next (its monotonic clock), and from where."""


def sweep_due(*, using: str, limit: int = 500) -> int:
    """End up to ``limit`` waits whose time has come, in one transaction, and wake their executions; how many ended.

    An answer of ``limit`` means that there may be more. When little is due, a window of repairs is done too,
    at most every :data:`REPAIR_SECONDS`.
    """
    done, position = 0, ("-infinity", 0)
    while not done:
        params = {"wake_at": position[0], "id": position[1], "limit": limit}
        due = rows(using, _DUE, params)
        if not due:
            break
        position = (due[-1][1], due[-1][0])
        waiters = {wait: execution for wait, _, execution in due}
        done = handle_all(
            list(waiters), partial(_time_out, waiters=waiters, using=using), label="due wait", using=using
        )
    if done < limit:
        at, start = _rounds.get(using, (0.0, Position()))
        if time.monotonic() >= at:
            repaired, end = repair(start, using=using, limit=limit)
            _rounds[using] = (time.monotonic() + REPAIR_SECONDS, end)
            done += repaired
    return done


def seconds_until_due(*, using: str) -> float | None:
    """Seconds until the next wait is due (0: now), None when none waits for its time.

    What has been overdue for a second is held by somebody or cannot be moved: it asks for a look in another.
    """
    ((first, fresh),) = rows(using, _SECONDS, {})
    if first is None:
        return None
    if fresh is None:
        return _AGAIN_SECONDS
    return max(0.0, min(float(fresh), _AGAIN_SECONDS) if first < fresh else float(fresh))


def repair(start: Position, *, using: str, limit: int = 500) -> tuple[int, Position]:
    """Wake what should have been woken, in one window from ``start``: how many waits or executions, and the end.

    Covers waits for jobs and children that have ended or are gone, and executions that wait though the last
    thing they asked for has come. Bounded by ``limit`` rows each; after the last window a round starts anew.
    """
    window = {"target": start.target[0], "kind": start.target[1], "limit": limit}
    targets = rows(using, _TARGETS, window)
    done = 0
    for kind in ("job", "child"):
        for over, act in ((True, _target_ended), (None, _target_gone)):
            ids = [pk for pk, of, ended in targets if of == kind and ended is over]
            done += _handle(ids, partial(act, kind=kind, using=using), using)
    created_at, pk = start.waiting
    waiting = rows(using, _WAITING, {"created_at": created_at, "id": pk, "limit": limit})
    unwoken = rows(using, _UNWOKEN, {"ids": [pk for _, pk in waiting]})
    done += _handle([pk for pk, _ in unwoken], partial(_wake_up, using=using), using)
    beginning = Position()
    return done, Position(
        (targets[-1][0], targets[-1][1]) if len(targets) == limit else beginning.target,
        (waiting[-1][0], waiting[-1][1]) if len(waiting) == limit else beginning.waiting,
    )


def _handle(ids: Sequence[int], act: Callable[[Sequence[int]], int], using: str) -> int:
    return handle_all(ids, act, label="repair of", using=using) if ids else 0


def _time_out(ids: Sequence[int], *, waiters: dict[int, int], using: str) -> int:
    locked = [pk for (pk,) in rows(using, _LOCK, {"ids": [waiters[wait] for wait in ids]})]
    ended = [
        (execution, wait) for execution, wait in rows(using, _TIME_OUT, {"ids": list(ids), "locked": locked})
    ]
    wake(ended, using=using)
    return len(ended)


def _target_ended(targets: Sequence[int], *, kind: str, using: str) -> int:
    (jobs_ended if kind == "job" else children_ended)(targets, using)
    logger.warning("%s %s had ended and the execution that awaits it was not told", kind, list(targets))
    return len(targets)


def _target_gone(targets: Sequence[int], *, kind: str, using: str) -> int:
    params = {"targets": list(targets), "kind": kind}
    locked = [pk for (pk,) in rows(using, _LOCK_WAITERS, params)]
    ended = [(execution, wait) for execution, wait in rows(using, _GONE, {**params, "locked": locked})]
    wake(ended, using=using)
    logger.warning("%s %s was deleted while an execution awaited it", kind, list(targets))
    return len(ended)


def _wake_up(ids: Sequence[int], *, using: str) -> int:
    locked = [pk for (pk,) in rows(using, _LOCK_EXECUTIONS, {"ids": list(ids)})]
    still = [(execution, wait) for execution, wait in rows(using, _UNWOKEN, {"ids": locked})]
    woken = wake(still, using=using)
    if woken:
        logger.warning("executions %s waited for what had come", woken)
    return len(woken)
