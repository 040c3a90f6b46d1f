"""What a person, or code in a person's name, may do to executions. Admin, commands and API all call these."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django.db import transaction

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.leases.fence import LEASE_CLEARED
from pgjobs.queue.acting import LARGEST_ID, NOTE_BYTES, Expected, VerbOutcome, listed, record_outcomes
from pgjobs.queue.control import retry as retry_jobs
from pgjobs.queue.enqueue import CHANNEL
from pgjobs.queue.models import Job
from pgjobs.workflows.expected import difference
from pgjobs.workflows.models import Execution
from pgjobs.workflows.reopening import Reopening, examine, reopen
from pgjobs.workflows.states import ExecutionStatus, sources
from pgjobs.workflows.waits import children_ended, lock_executions

logger = logging.getLogger("pgjobs.control")

_S = ExecutionStatus

# Fence of all verbs: status and token as read under the row's lock, which is held.
_MOVE = """
UPDATE pgjobs_execution AS execution SET updated_at = clock_timestamp(), note = %(note)s, {columns}
FROM unnest(%(ids)s::bigint[], %(statuses)s::text[], %(tokens)s::uuid[]) AS held(id, status, token)
WHERE execution.id = held.id AND execution.status = held.status
  AND execution.lease_token IS NOT DISTINCT FROM held.token
RETURNING execution.id"""

_ENQUEUED = "status = 'enqueued', available_at = clock_timestamp(), crash_count = 0, pause_reason = ''"
_COLUMNS = {
    "resume": _ENQUEUED,
    "retry": f"{_ENQUEUED}, completed_at = NULL, output = NULL",
    "pause": "status = 'paused', pause_reason = %(note)s",
    "cancel": f"status = 'cancelled', completed_at = clock_timestamp(), {LEASE_CLEARED}",
}

# Everything a cancellation touches: the live descendants of live executions, and whoever waits for one of them.
_FAMILY = """
WITH RECURSIVE family(id) AS (
    SELECT id FROM pgjobs_execution
    WHERE id = ANY(%(ids)s::bigint[]) AND status NOT IN ('succeeded', 'failed', 'cancelled')
    UNION
    SELECT child.id FROM family JOIN pgjobs_execution AS child ON child.parent_id = family.id
    WHERE child.status NOT IN ('succeeded', 'failed', 'cancelled')
)
SELECT id, true FROM family
UNION ALL
SELECT wait.execution_id, false FROM pgjobs_wait AS wait JOIN family ON family.id = wait.target_id
WHERE wait.kind = 'child' AND wait.resolved_at IS NULL"""

_CLOSE_WAITS = """
UPDATE pgjobs_wait SET resolved_at = clock_timestamp(), resolution = '{"cancelled": true}'::jsonb
WHERE execution_id = ANY(%(ids)s::bigint[]) AND resolved_at IS NULL
RETURNING kind, target_id"""

# pending -> cancelled. Settlement locks a job before the execution that awaits it, so here, where the execution
# is locked first, no job is waited for: one that is held is about to run or to end, and is left to finish.
_CANCEL_JOBS = """
WITH idle AS MATERIALIZED (
    SELECT id FROM pgjobs_job
    WHERE id = ANY(%(jobs)s::bigint[]) AND status = 'pending' AND awaited
      AND NOT EXISTS (SELECT FROM pgjobs_wait AS wait
                      WHERE wait.target_id = pgjobs_job.id AND wait.kind = 'job' AND wait.resolved_at IS NULL)
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE pgjobs_job AS job SET status = 'cancelled', completed_at = clock_timestamp(), note = %(note)s
FROM idle WHERE job.id = idle.id AND job.status = 'pending'"""


@dataclass(frozen=True, slots=True)
class _Held:
    """An execution whose row is locked, as it stood then."""

    status: ExecutionStatus
    token: uuid.UUID | None
    attempt_count: int
    owner: str | None

    def differs_from(self, pk: int, expected: Expected | None) -> str:
        """How it stands, when that is not what was seen."""
        return difference((expected or {}).get(pk), self.status, self.attempt_count, self.owner)


@dataclass(frozen=True, slots=True)
class _By:
    """Who asks, why, and whether it is an operation of its own in the audit."""

    actor: Any
    reason: str
    audited: bool


def cancel(
    ids: Iterable[int],
    *,
    actor: Any,
    reason: str = "",
    expected: Expected | None = None,
    audited: bool = True,
) -> list[VerbOutcome]:
    """Stop executions that have not ended, with their children and the jobs they await that have not begun.

    Jobs that run are left to finish. A worker that runs an execution loses its lease and can change nothing. A
    parent that waits for one of them is told in the same transaction. ``expected`` of this and the other verbs is
    status and attempt_count by id, as the person saw them: what stands otherwise by now is left, and says so.
    ``audited=False`` is for a caller that records the operation of which this is a part.
    """
    using, wanted, note = _prepared(ids, "cancelled", actor, reason)
    with transaction.atomic(using=using):
        family = lock_family(wanted, expected, using)
        held = _locked([*wanted, *family], using)
        doomed = [pk for pk in family if held[pk].status in sources("cancel")]
        _move("cancel", {pk: held[pk] for pk in doomed}, note, using)
        closed = rows(using, _CLOSE_WAITS, {"ids": doomed})
        jobs = [target for kind, target in closed if kind == "job" and target is not None]
        if jobs:
            rows(using, _CANCEL_JOBS, {"jobs": jobs, "note": f"its execution was {note}"[:NOTE_BYTES]})
        if doomed:
            children_ended(doomed, using)
        changed = _changed({pk: row for pk, row in held.items() if pk not in doomed}, expected)
        return _told("cancel", "cancelled", _S.CANCELLED, wanted, held, _By(actor, reason, audited), changed)


def resume(
    ids: Iterable[int],
    *,
    actor: Any,
    reason: str = "",
    expected: Expected | None = None,
    audited: bool = True,
) -> list[VerbOutcome]:
    """Let paused executions go on from their history, with a fresh crash budget."""
    return _simple("resume", "resumed", _S.ENQUEUED, ids, _By(actor, reason, audited), expected)


def retry(
    ids: Iterable[int],
    *,
    actor: Any,
    reason: str = "",
    expected: Expected | None = None,
    audited: bool = True,
) -> list[VerbOutcome]:
    """Let failed executions go on: recorded steps stay, the call whose failure ended the execution is made again.

    When that was a gather, a job or a child, what failed of it is retried too; a child with what failed in it.
    An execution whose last call would only answer the same (it timed out, or its child was cancelled) is left.
    """
    by = _By(actor, reason, audited)
    using, wanted, note = _prepared(ids, "retried", actor, reason)
    with transaction.atomic(using=using):
        reopening = _lock_reopening(_possible(wanted), using)
        changed = _changed(_locked(wanted, using), expected)
        if changed:
            reopening = examine([pk for pk in _possible(wanted) if pk not in changed], using=using)
        left = {**reopening.refused, **changed}
        held = _locked([*wanted, *reopening.children_to_retry()], using)
        if jobs := reopening.jobs_to_retry():
            retry_jobs(jobs, actor=actor, reason=reason, audited=False)
        reopen(reopening, using=using)
        movable_now = {
            pk: row for pk, row in held.items() if row.status in movable("retry") and pk not in left
        }
        _move("retry", movable_now, note, using)
        _announce(held, using)
        return _told("retry", "retried", _S.ENQUEUED, wanted, held, by, changed, reopening.refused)


def pause(
    ids: Iterable[int],
    *,
    actor: Any,
    reason: str = "",
    expected: Expected | None = None,
    audited: bool = True,
) -> list[VerbOutcome]:
    """Hold executions that wait or are queued until they are resumed. What they wait for is still taken note of."""
    return _simple("pause", "paused", _S.PAUSED, ids, _By(actor, reason, audited), expected)


def _simple(
    verb: str,
    done: str,
    target: ExecutionStatus,
    ids: Iterable[int],
    by: _By,
    expected: Expected | None,
) -> list[VerbOutcome]:
    using, wanted, note = _prepared(ids, done, by.actor, by.reason)
    with transaction.atomic(using=using):
        held = _locked(wanted, using)
        changed = _changed(held, expected)
        free = {pk: row for pk, row in held.items() if row.status in movable(verb) and pk not in changed}
        _move(verb, free, note, using)
        if target is _S.ENQUEUED:
            _announce(held, using)
        return _told(verb, done, target, wanted, held, by, changed)


def _changed(held: dict[int, _Held], expected: Expected | None) -> dict[int, str]:
    """Of what is held, that which is not as it was seen, and how it stands."""
    differences = ((pk, row.differs_from(pk, expected)) for pk, row in held.items())
    return {pk: told for pk, told in differences if told}


def _announce(held: dict[int, _Held], using: str) -> None:
    if held and get_settings().notify:
        rows(using, f"SELECT pg_notify('{CHANNEL}', '')", {})


def movable(verb: str) -> frozenset[ExecutionStatus]:
    """From where a person may take an execution by this verb. A running one pauses only by its own worker."""
    return sources(verb) - {_S.RUNNING} if verb == "pause" else sources(verb)


def _prepared(ids: Iterable[int], done: str, actor: Any, reason: str) -> tuple[str, list[int], str]:
    wanted = sorted({int(pk) for pk in ids})
    note = codec.storable_text(f"{done} by {actor}" + (f": {reason}" if reason else ""), NOTE_BYTES)
    return get_settings().database, wanted, note


def lock_family(ids: list[int], expected: Expected | None, using: str) -> list[int]:
    """Lock what a cancellation touches, all in the order of id, and return what is to be cancelled.

    What is not as ``expected`` brings nobody with it, and goes only as somebody else's descendant.
    A child that is started meanwhile may have a lower id than a row locked before it, so then all locks of this
    try are given up (the savepoint is rolled back) and taken again.
    """
    known: set[int] = set()
    while True:
        with transaction.atomic(using=using):
            held = _locked({*ids, *known}, using)
            changed = _changed(held, expected)
            found = rows(using, _FAMILY, {"ids": [pk for pk in _possible(ids) if pk not in changed]})
            touched = {pk for pk, _ in found}
            if touched <= {*ids, *known}:
                return sorted({pk for pk, doomed in found if doomed})
            transaction.set_rollback(True, using=using)
        known |= touched


def _lock_reopening(ids: list[int], using: str) -> Reopening:
    """What a retry opens again, with jobs and then executions locked, each in the order of id, as settlements do."""
    seen = examine(ids, using=using)
    while True:
        with transaction.atomic(using=using):
            jobs = Job._base_manager.using(using).filter(pk__in=list(seen.jobs)).order_by("pk")
            list(jobs.select_for_update(no_key=True).values_list("pk"))
            lock_executions(sorted({*ids, *seen.children}), using=using)
            now = examine(ids, using=using)
            if now.jobs.keys() <= seen.jobs.keys() and now.children.keys() <= seen.children.keys():
                return now
            transaction.set_rollback(True, using=using)
        seen = now


def _possible(ids: Iterable[int]) -> list[int]:
    """Ids that a bigint can hold; there is no execution under another."""
    return [pk for pk in ids if 0 < pk <= LARGEST_ID]


def _locked(ids: Iterable[int], using: str) -> dict[int, _Held]:
    found = Execution._base_manager.using(using).filter(pk__in=_possible(ids)).order_by("pk")
    locked = found.select_for_update(no_key=True).values_list(
        "pk", "status", "lease_token", "attempt_count", "lease_owner"
    )
    return {pk: _Held(_S(status), token, count, owner) for pk, status, token, count, owner in locked}


def _move(verb: str, held: dict[int, _Held], note: str, using: str) -> None:
    params = {
        "note": note,
        "ids": list(held),
        "statuses": [row.status.value for row in held.values()],
        "tokens": [row.token for row in held.values()],
    }
    if held:
        rows(using, _MOVE.format(columns=_COLUMNS[verb]), params)


def _told(
    verb: str,
    done: str,
    target: ExecutionStatus,
    wanted: list[int],
    held: dict[int, _Held],
    by: _By,
    changed: Mapping[int, str],
    refused: Mapping[int, str] = MappingProxyType({}),
) -> list[VerbOutcome]:
    """The outcome for each id; in the verb's own transaction, with which the audit's row commits."""
    outcomes = []
    for pk in wanted:
        if pk not in held:
            outcomes.append(VerbOutcome(pk, False, "there is no such execution", None))
            continue
        before = held[pk].status
        if pk in changed:
            outcomes.append(VerbOutcome(pk, False, changed[pk], before.value, conflict=True))
        elif pk in refused:
            outcomes.append(VerbOutcome(pk, False, refused[pk], before.value))
        elif before in movable(verb):
            outcomes.append(VerbOutcome(pk, True, f"{done} (was {before})", target.value))
        else:
            message = f"it is {before}; only {listed(movable(verb))} executions can be {done}"
            outcomes.append(VerbOutcome(pk, False, message, before.value))
    if by.audited and wanted:
        record_outcomes("execution", verb, outcomes, actor=by.actor, reason=by.reason)
    for outcome in outcomes:
        logger.info("execution=%s verb=%s done=%s by=%s", outcome.id, verb, outcome.done, by.actor)
    return outcomes
