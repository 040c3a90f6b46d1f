"""Carry bulk operations: batch by batch, the cursor in the same commit as the jobs, so that a killed carrier repeats
nothing and several carriers never do the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import DatabaseError, connections, transaction
from django.db.models.functions import Now

from pgjobs.bulk.control import record_end
from pgjobs.bulk.filters import VERBS, Found, find
from pgjobs.bulk.models import BulkOperation
from pgjobs.bulk.states import BulkState
from pgjobs.codec import storable_text
from pgjobs.conf import get_settings
from pgjobs.connections import brief_locks, busy, rows
from pgjobs.queue.acting import VerbOutcome
from pgjobs.queue.audit import Actor

logger = logging.getLogger("pgjobs.bulk")

BATCH = 500
"""Most jobs of one transaction."""

_BUSY = 0.5  # seconds until a batch is tried again that met a lock
_LONGEST_SLEEP = 10.0  # seconds, however slow the pace: somebody may stop it
_MOST_CONFLICTS = 200

# Locks: jobs in id order, skipping what others hold, so that no batch stands still for a handler's transaction.
_PATIENCE = "SELECT set_config('statement_timeout', %(limit)s, true)"
_LOCK = """
SELECT id FROM pgjobs_job WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"""

# What was not used is saved up for two seconds, and no longer: hours without a carrier make no flood.
_ALLOWED = """
SELECT LEAST(%(allowance)s + %(pace)s::float8 * extract(epoch FROM clock_timestamp() - %(from)s::timestamptz)::float8,
             GREATEST(1, 2 * %(pace)s::float8)), clock_timestamp()"""

# Of the watched: those that ended without success again, and those that have not been tried since.
_WATCHED = """
SELECT count(*) FILTER (WHERE status IN ('dead', 'failed') AND completed_at > %(since)s::timestamptz),
       count(*) FILTER (WHERE status = 'running' OR status = 'pending'
                        AND COALESCE(started_at <= %(since)s::timestamptz, true))
FROM pgjobs_job WHERE id = ANY(%(ids)s::bigint[])"""

_UNTRIED = 1.0  # seconds until the watched are looked at again


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch did."""

    moved: int
    state: BulkState
    """Where the operation stands after it."""
    wait: float = 0.0
    """Seconds until the next may come."""


def running(*, using: str) -> list[int]:
    """The operations that are to be carried on, the oldest first."""
    found = BulkOperation._base_manager.using(using).filter(state=BulkState.RUNNING.value)
    return list(found.order_by("pk").values_list("pk", flat=True))


def carry(
    pk: int,
    *,
    by: str,
    seconds: float | None = None,
    sleep: Callable[[float], object] = time.sleep,
    on_batch: Callable[[Batch], object] = lambda batch: None,
    statement_seconds: float | None = None,
) -> BulkState | None:
    """Do batch after batch until the operation is no longer running; where it stands then, None for no such one.

    With ``seconds`` only for about so long and without ever waiting for the pace: for a web request, so that a small
    operation is over when the page comes back. ``by`` names the carrier. With ``statement_seconds`` a statement of a
    batch that takes longer ends the work: raises what the database raises, and that batch is rolled back.
    """
    using = get_settings().database
    started = time.monotonic()
    while True:
        batch = run_batch(pk, by=by, using=using, statement_seconds=statement_seconds)
        if batch is None:
            state = _state(pk, using)
            if state is not BulkState.RUNNING:
                return state
            batch = Batch(0, BulkState.RUNNING, _BUSY)  # somebody else has it in hand
        on_batch(batch)
        spent = time.monotonic() - started
        if batch.state is not BulkState.RUNNING or (seconds is not None and (batch.wait or spent > seconds)):
            return batch.state
        if batch.wait:
            sleep(min(batch.wait, _LONGEST_SLEEP))


def run_batch(pk: int, *, by: str, using: str, statement_seconds: float | None = None) -> Batch | None:
    """One batch in one transaction. None when the operation does not run, or somebody else has it in hand."""
    alone = not connections[using].in_atomic_block
    try:
        with transaction.atomic(using=using):
            if alone:  # in a transaction of the caller's the limit would outlive the batch
                brief_locks(using)
                if statement_seconds is not None:
                    rows(using, _PATIENCE, {"limit": f"{round(statement_seconds * 1000)}ms"})
            found = BulkOperation._base_manager.using(using).filter(pk=pk, state=BulkState.RUNNING.value)
            operation = found.select_for_update(skip_locked=True).first()
            return None if operation is None else _batch(operation, by, using)
    except DatabaseError as error:
        if not busy(error) or not alone:
            raise
        return Batch(0, BulkState.RUNNING, _BUSY)


def hold(pk: int, error: BaseException, *, using: str) -> None:
    """Pause an operation whose batches fail, so that a person sees why and no carrier fails at it for ever."""
    # The first line alone: PostgreSQL's details may quote a whole row, its payload with it.
    told = (str(error).splitlines() or [""])[0]
    note = storable_text(f"a batch failed: {type(error).__name__}: {told}", 1_000)
    with transaction.atomic(using=using):
        found = BulkOperation._base_manager.using(using).filter(pk=pk, state=BulkState.RUNNING.value)
        held = found.select_for_update(skip_locked=True).values_list("pk", flat=True)
        # Where another carrier has it in hand, that one will see for itself.
        found.filter(pk__in=list(held)).update(state=BulkState.PAUSED.value, note=note)


def watched(operation: BulkOperation, *, using: str) -> tuple[int, int]:
    """Of the jobs that are watched: how many have ended without success again, and how many are yet to be tried."""
    if not operation.watched:
        return 0, 0
    params = {"ids": operation.watched, "since": operation.started_at}
    ((died, untried),) = rows(using, _WATCHED, params)
    return died, untried


def _state(pk: int, using: str) -> BulkState | None:
    state = BulkOperation._base_manager.using(using).filter(pk=pk).values_list("state", flat=True).first()
    return None if state is None else BulkState(state)


def _batch(operation: BulkOperation, by: str, using: str) -> Batch:
    operation.carried_by = by[:200]
    if operation.stop_share is not None:
        operation.failed, untried = watched(operation, using=using)
        if _rule_broken(operation):
            return _end(operation, BulkState.STOPPED, using)
        if untried and len(operation.watched) == max(operation.stop_first or 0, operation.canary or 0):
            _write(operation, using)
            return Batch(0, BulkState.RUNNING, _UNTRIED)  # what came after them could not be stopped
    limit, wait = _room(operation, using)
    if limit < 1:
        return Batch(0, BulkState.RUNNING, wait)
    found = find(
        operation.filter,
        upper_id=operation.upper_id,
        before=operation.before,
        cursor_at=operation.cursor_at,
        cursor_id=operation.cursor_id,
        limit=limit,
        using=using,
    )
    moved = _do(operation, found, using)
    if found.exhausted:
        operation.note = ""
        return _end(operation, BulkState.DONE, using, moved)
    if _canary_left(operation) == 0:
        operation.state = BulkState.WAITING
        operation.note = f"the canary of {operation.canary} is out; release it or stop"
    wait = _room(operation, using)[1]
    _write(operation, using)
    return Batch(moved, BulkState(operation.state), wait)


def _do(operation: BulkOperation, found: Found, using: str) -> int:
    """The verb on what was found, and the counters and the cursor for it."""
    verb = VERBS[operation.verb]
    locked = [pk for (pk,) in rows(using, _LOCK, {"ids": found.ids})] if found.ids else []
    outcomes: list[VerbOutcome] = []
    if locked:
        who = Actor(operation.actor, operation.user_id, operation.via)
        reason = f"{operation.reason} (bulk {operation.pk})"
        outcomes = verb.act(locked, actor=who, reason=reason, audited=False, **operation.options)
    counts = {
        result: sum(each.result == result for each in outcomes) for result in ("done", "skipped", "conflict")
    }
    operation.done += counts["done"]
    operation.skipped += counts["skipped"] + len(found.ids) - len(locked)
    operation.conflict += counts["conflict"]
    told = [[each.id, each.message] for each in outcomes if each.conflict]
    operation.conflicts = [*operation.conflicts, *told][:_MOST_CONFLICTS]
    most = max(operation.canary or 0, operation.stop_first or 0)
    done = [each.id for each in outcomes if each.done]
    operation.watched = [*operation.watched, *done][:most]
    operation.allowance -= len(found.ids)
    operation.cursor_at, operation.cursor_id = found.cursor_at, found.cursor_id
    return counts["done"]


def _room(operation: BulkOperation, using: str) -> tuple[int, float]:
    """How many jobs may be taken now, and seconds until more than next to none may."""
    limits, wait = [BATCH], 0.0
    if operation.pace:
        pace = operation.pace
        params = {"pace": pace, "from": operation.paced_from, "allowance": operation.allowance}
        ((operation.allowance, operation.paced_from),) = rows(using, _ALLOWED, params)
        limits.append(int(operation.allowance))
        # Not one by one at a high pace: about ten batches a second.
        wait = max(min(BATCH, max(1.0, pace / 10)) - operation.allowance, 0.0) / pace
    left = _canary_left(operation)
    if left is not None:
        limits.append(left)
    if operation.stop_first and len(operation.watched) < operation.stop_first:
        limits.append(operation.stop_first - len(operation.watched))
    return min(limits), wait


def _canary_left(operation: BulkOperation) -> int | None:
    """How many of the canary are still to be done; None when there is none, or it was released."""
    if operation.canary is None or operation.canary_released_at is not None:
        return None
    return max(operation.canary - operation.done, 0)


def _rule_broken(operation: BulkOperation) -> bool:
    """Whether too many of the first have died again."""
    if operation.stop_share is None or not operation.stop_first:
        return False
    if operation.failed <= operation.stop_share * operation.stop_first:
        return False
    operation.note = (
        f"stop rule: {operation.failed} of the first {len(operation.watched)} ended without success again, more than "
        f"{operation.stop_share:.0%} of {operation.stop_first}"
    )
    return True


def _end(operation: BulkOperation, state: BulkState, using: str, moved: int = 0) -> Batch:
    operation.state = state
    _write(operation, using, ended_at=Now())
    record_end(operation, using)
    logger.info("bulk=%s state=%s done=%s skipped=%s", operation.pk, state, operation.done, operation.skipped)
    return Batch(moved, state)


_WRITTEN = (
    "state",
    "note",
    "done",
    "skipped",
    "conflict",
    "failed",
    "watched",
    "conflicts",
    "cursor_at",
    "cursor_id",
    "paced_from",
    "allowance",
    "carried_by",
)


def _write(operation: BulkOperation, using: str, **columns: object) -> None:
    """The row is locked, and was running when it was read."""
    given = {name: getattr(operation, name) for name in _WRITTEN}
    given["note"] = storable_text(operation.note, 1_000)
    BulkOperation._base_manager.using(using).filter(pk=operation.pk).update(
        **given, progress_at=Now(), **columns
    )
