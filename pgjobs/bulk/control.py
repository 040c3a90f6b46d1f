"""What a person may do to bulk operations: preview, plan, start, pause, resume, release the canary, stop."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.models.functions import Now

from pgjobs import codec
from pgjobs.bulk.filters import COUNT_LIMIT, SAMPLE, VERBS, checked, count, in_words
from pgjobs.bulk.models import BulkOperation
from pgjobs.bulk.states import ENDED, SOURCES, BulkState
from pgjobs.conf import get_settings
from pgjobs.connections import brief_locks, busy, rows
from pgjobs.exceptions import InvalidOption
from pgjobs.queue import audit
from pgjobs.queue.acting import LARGEST_ID, VerbOutcome, listed, record_outcomes

logger = logging.getLogger("pgjobs.control")

MOST_WATCHED = 1_000
"""Jobs that a canary or a stop rule can look at."""

_PATIENCE = "5s"  # a batch takes well under a second

_MOVES: dict[str, tuple[str, BulkState]] = {
    "start": ("started", BulkState.RUNNING),
    "pause": ("paused", BulkState.PAUSED),
    "resume": ("resumed", BulkState.RUNNING),
    "release_canary": ("released", BulkState.RUNNING),
    "stop": ("stopped", BulkState.STOPPED),
}


@dataclass(frozen=True, slots=True)
class Preview:
    """What a bulk operation would be about, now."""

    verb: str
    filter: dict[str, str]
    words: str
    """The filter for people."""
    upper_id: int
    """The highest id that is meant; pass it on, so that what was seen is what is done."""
    count: int
    more: bool
    """Whether there are more than the count says."""
    groups: list[tuple[str, str, int]]
    """(queue, job type, jobs) of what was counted, the largest first."""
    sample: list[int]
    """Ids of some of them, the newest first."""


def preview(given: Mapping[str, Any], verb: str) -> Preview:
    """Count and sample what matches; changes nothing. Raises :class:`InvalidOption`."""
    using = get_settings().database
    wanted = checked(given, verb)
    ((upper_id,),) = rows(using, "SELECT COALESCE(max(id), 0) FROM pgjobs_job", {})
    found = count(wanted, upper_id=upper_id, using=using)
    jobs = sum(each[2] for each in found)
    sample = sorted((pk for *_, ids in found for pk in ids), reverse=True)[:SAMPLE]
    groups = [(queue, job_type, number) for queue, job_type, number, _ in found]
    words = in_words(wanted)
    return Preview(verb, wanted, words, upper_id, min(jobs, COUNT_LIMIT), jobs > COUNT_LIMIT, groups, sample)


def plan(
    verb: str,
    given: Mapping[str, Any],
    *,
    actor: Any,
    reason: str,
    upper_id: int | None = None,
    pace: float | None = None,
    canary: int | None = None,
    stop_share: float | None = None,
    stop_first: int = 100,
    options: Mapping[str, Any] | None = None,
) -> BulkOperation:
    """Write down what is to be done; :func:`start` begins it.

    Meant are the jobs that match, up to ``upper_id`` (of a preview) or the newest. ``pace`` is jobs a second.
    ``canary``: so many first, then it waits for :func:`release_canary`. ``stop_share``: the rest waits until the first
    ``stop_first`` that were retried have been tried, and it stops when more than that share of them end without
    success again. ``options`` are the verb's. Raises :class:`InvalidOption`; a reason must be given.
    """
    seen = preview(given, verb)
    chosen = _checked_options(verb, options or {}, actor)
    _check_terms(verb, reason, pace, canary, stop_share, stop_first)
    using = get_settings().database
    who = audit.Actor.of(actor)
    operation = BulkOperation(
        verb=verb,
        filter=seen.filter,
        options=chosen,
        upper_id=seen.upper_id if upper_id is None else min(upper_id, seen.upper_id),
        before=Now(),
        reason=codec.storable_text(reason, 2_000),
        actor=codec.storable_text(who.name, 200),
        user_id=who.user_id,
        via=who.via,
        pace=pace,
        canary=canary,
        stop_share=stop_share,
        stop_first=None if stop_share is None else stop_first,
        total=seen.count + seen.more,
    )
    operation.save(using=using, force_insert=True)
    operation.refresh_from_db(using=using)
    return operation


def start(pk: int, *, actor: Any, reason: str = "", expected: str | None = None) -> VerbOutcome:
    """Let it be carried, by whichever worker or command comes first; :func:`pgjobs.bulk.runner.carry` is at once."""
    return _move("start", pk, actor, reason, expected, started_at=Now())


def pause(pk: int, *, actor: Any, reason: str = "", expected: str | None = None) -> VerbOutcome:
    """Hold it after the batch that is on its way."""
    return _move("pause", pk, actor, reason, expected)


def resume(pk: int, *, actor: Any, reason: str = "", expected: str | None = None) -> VerbOutcome:
    """Let it go on from where it was held."""
    return _move("resume", pk, actor, reason, expected)


def release_canary(pk: int, *, actor: Any, reason: str = "", expected: str | None = None) -> VerbOutcome:
    """The first did well: do the rest."""
    return _move("release_canary", pk, actor, reason, expected, canary_released_at=Now())


def stop(pk: int, *, actor: Any, reason: str = "", expected: str | None = None) -> VerbOutcome:
    """End it early. What was done stays done."""
    return _move("stop", pk, actor, reason, expected, ended_at=Now())


def _move(verb: str, pk: int, actor: Any, reason: str, expected: str | None, **columns: Any) -> VerbOutcome:
    """One transaction: lock, compare, move, record. A batch on its way is waited for, but not for ever: whoever does it
    may stand still."""
    using = get_settings().database
    alone = not connections[using].in_atomic_block
    try:
        with transaction.atomic(using=using):
            if alone:  # in a transaction of the caller's the limit would outlive the move
                brief_locks(using, _PATIENCE)
            return _moved(verb, pk, actor, reason, expected, columns, using)
    except DatabaseError as error:
        if not busy(error) or not alone:
            raise
    message = (
        f"a batch of it has not ended for {_PATIENCE}: whoever carries it may stand still. Try again; if it stays so, "
        f"end that worker, or its session with pg_terminate_backend"
    )
    state = BulkOperation._base_manager.using(using).filter(pk=pk).values_list("state", flat=True).first()
    return VerbOutcome(pk, False, message, state, conflict=True)


def _moved(
    verb: str, pk: int, actor: Any, reason: str, expected: str | None, columns: dict[str, Any], using: str
) -> VerbOutcome:
    done, target = _MOVES[verb]
    found = BulkOperation._base_manager.using(using).filter(pk=pk if 0 < pk <= LARGEST_ID else 0)
    operation = found.select_for_update().first()
    outcome = _judged(verb, done, target, operation, pk, expected)
    if operation is not None and outcome.done:
        note = codec.storable_text(f"{done} by {actor}" + (f": {reason}" if reason else ""), 1_000)
        paced = {"paced_from": Now(), "allowance": 1.0} if target is BulkState.RUNNING else {}
        found.update(state=target, note=note, **paced, **columns)
    details = {} if operation is None else _told(operation)
    record_outcomes("bulk", verb, [outcome], actor=actor, reason=reason, details=details)
    logger.info("bulk=%s verb=%s done=%s by=%s", pk, verb, outcome.done, actor)
    return outcome


def _judged(
    verb: str, done: str, target: BulkState, operation: BulkOperation | None, pk: int, expected: str | None
) -> VerbOutcome:
    if operation is None:
        return VerbOutcome(pk, False, "there is no such bulk operation", None)
    state = BulkState(operation.state)
    if expected is not None and expected != state:
        message = f"it was {expected} when you looked; it is now {state}"
        return VerbOutcome(pk, False, message, state.value, conflict=True)
    if state not in SOURCES[verb]:
        message = f"it is {state}; only {listed(SOURCES[verb])} bulk operations can be {done}"
        return VerbOutcome(pk, False, message, state.value)
    return VerbOutcome(pk, True, f"{done} (was {state})", target.value)


def _told(operation: BulkOperation) -> dict[str, Any]:
    """For the audit: what it is about, and how far it is."""
    return {
        "does": operation.verb,
        "filter": operation.filter,
        "options": operation.options,
        "why": operation.reason,
        "matching": operation.total,
        "done": operation.done,
    }


def record_end(operation: BulkOperation, using: str) -> None:
    """The row of the audit that tells what came of it, in the name of the person who planned it."""
    assert operation.state in ENDED
    audit.record(
        f"bulk_{operation.verb}",
        target_kind="bulk",
        target_ids=[operation.pk],
        target_count=operation.done + operation.skipped + operation.conflict,
        actor=audit.Actor(operation.actor, operation.user_id, operation.via),
        reason=operation.reason,
        done=operation.done,
        skipped=operation.skipped,
        refused=operation.conflict,
        details={"filter": operation.filter, "state": operation.state, "note": operation.note},
        using=using,
    )


def _checked_options(verb: str, options: Mapping[str, Any], actor: Any) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not None}
    unknown = given.keys() - VERBS[verb].options
    if unknown:
        known = ", ".join(sorted(VERBS[verb].options)) or "none"
        raise InvalidOption("options", sorted(unknown), f"{verb} in bulk takes: {known}.")
    VERBS[verb].act([], actor=actor, audited=False, **given)  # on nothing: only looks at the options
    return given


def _check_terms(verb: str, reason: str, pace: Any, canary: Any, stop_share: Any, stop_first: Any) -> None:
    if not reason.strip():
        raise InvalidOption("reason", reason, "say why; many jobs change at once.")
    if pace is not None and not (
        isinstance(pace, int | float) and not isinstance(pace, bool) and 0 < pace <= 1e6
    ):
        raise InvalidOption("pace", pace, "give jobs a second, above 0 and at most 1,000,000.")
    if stop_share is not None and verb != "retry":
        raise InvalidOption("stop_share", stop_share, "only what is retried can end without success again.")
    if stop_share is not None and not (isinstance(stop_share, int | float) and 0 <= stop_share < 1):
        raise InvalidOption("stop_share", stop_share, "give a share from 0 to below 1, such as 0.2.")
    for name, value in (("canary", canary), ("stop_first", stop_first)):
        if value is not None and (type(value) is not int or not 1 <= value <= MOST_WATCHED):
            raise InvalidOption(name, value, f"give a whole number from 1 to {MOST_WATCHED:,}.")
