"""Settle: write how attempts ended, many in one statement, each row fenced by its own token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from django.db import OperationalError, transaction

from pgjobs.conf import get_settings
from pgjobs.connections import brief_locks, busy, retrying, rows
from pgjobs.leases.fence import GIVEN, LEASE_CLEARED, as_given, by_key, error_appended, held_rows
from pgjobs.queue.activity import Notes, noting_ends
from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.queue.awaited import announce
from pgjobs.queue.fingerprints import fingerprint
from pgjobs.queue.outcomes import (
    Abandoned,
    AlreadyExisted,
    Failed,
    Finished,
    Problem,
    Raised,
    Snoozed,
    Succeeded,
)
from pgjobs.queue.results import produce
from pgjobs.queue.states import JobStatus


@dataclass(frozen=True, slots=True)
class Written:
    """The columns one outcome comes to."""

    status: JobStatus
    result: str | None = None
    problem: Problem | None = None
    delay: float | None = None
    refund: int = 0
    note: str = ""


# running -> what the outcome says. Fence: id, status, token. Locks: in id order, skipping
# what others hold. Called by: the settler.
_SETTLE = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(tokens)s::uuid[], %(statuses)s::text[], %(results)s::text[], %(entries)s::text[],
        %(messages)s::text[], %(classes)s::text[], %(fingerprints)s::text[], %(delays)s::float8[],
        %(refunds)s::int[], %(notes)s::text[]
    ) AS given(id, token, status, result, entry, message, error_class, fingerprint, delay, refund, note)
),
held AS MATERIALIZED ({held})
UPDATE pgjobs_job AS leased
SET status = given.status,
    result = COALESCE(given.result::jsonb, leased.result),
    errors = CASE WHEN given.entry IS NULL THEN leased.errors ELSE {errors} END,
    last_error = COALESCE(given.message, leased.last_error),
    error_class = COALESCE(given.error_class, leased.error_class),
    fingerprint = COALESCE(given.fingerprint, leased.fingerprint),
    available_at = CASE WHEN given.delay IS NULL THEN leased.available_at
                        ELSE clock_timestamp() + make_interval(secs => given.delay) END,
    attempt_count = leased.attempt_count - given.refund,
    completed_at = CASE WHEN given.status <> 'pending' THEN clock_timestamp() END,
    completed_by = CASE WHEN given.status <> 'pending' THEN leased.lease_owner END,
    note = given.note,
    {cleared}
FROM given WHERE leased.id = given.id AND {by_key}
RETURNING {moved}"""

_ENTRY = (
    "given.entry::jsonb || jsonb_build_object("
    "'attempt', leased.attempt_count, 'worker', leased.lease_owner, 'at', clock_timestamp())"
)

# running -> succeeded, when nothing but results is to be written: the same, with less to carry.
_SUCCEED = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::uuid[], %(results)s::text[]) AS given(id, token, result)
),
held AS MATERIALIZED ({held})
UPDATE pgjobs_job AS leased
SET status = 'succeeded', result = given.result::jsonb, note = '', completed_at = clock_timestamp(),
    completed_by = leased.lease_owner, {cleared}
FROM given WHERE leased.id = given.id AND {by_key}
RETURNING leased.id"""

# The same where no handler returned anything.
_SUCCEED_WITHOUT_RESULTS = """
WITH given AS MATERIALIZED (SELECT * FROM {given}),
held AS MATERIALIZED ({held})
UPDATE pgjobs_job AS leased
SET status = 'succeeded', result = NULL, note = '', completed_at = clock_timestamp(),
    completed_by = leased.lease_owner, {cleared}
WHERE {by_key}
RETURNING leased.id"""

_TABLE = "pgjobs_job"
_BAD_ENDS = (JobStatus.DEAD, JobStatus.FAILED)
_HELD = held_rows(_TABLE, locking="FOR NO KEY UPDATE SKIP LOCKED")
_PARTS = {
    "held": _HELD,
    "errors": error_appended(_ENTRY),
    "cleared": LEASE_CLEARED,
    "by_key": by_key("held"),
}
_SETTLE_SQL = _SETTLE.format(**_PARTS, moved="leased.id")
_MOVED = "leased.id, leased.status, leased.queue, leased.job_type, given.fingerprint, given.error_class"
_SETTLE_NOTED_SQL = noting_ends(_SETTLE.format(**_PARTS, moved=_MOVED))
_notes = Notes()
_SUCCEED_SQL = _SUCCEED.format(held=_HELD, cleared=LEASE_CLEARED, by_key=by_key("held"))
_SUCCEED_WITHOUT_RESULTS_SQL = _SUCCEED_WITHOUT_RESULTS.format(
    given=GIVEN, held=_HELD, cleared=LEASE_CLEARED, by_key=by_key("held")
)

_LANDED = """
SELECT job.id FROM pgjobs_job AS job
JOIN unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS asked(id, attempt) USING (id)
WHERE job.attempt_count = asked.attempt AND job.status <> 'running'
  AND (job.completed_by = %(owner)s OR (job.errors -> -1 ->> 'worker' = %(owner)s
       AND job.errors -> -1 ->> 'kind' <> 'lost' AND job.errors -> -1 ->> 'attempt' = asked.attempt::text))"""


def settle(ended: Sequence[Ended], *, using: str) -> set[int]:
    """Write the outcomes and return the ids that moved; every other row is no longer this worker's.

    One statement, unless idempotency keys are to be stored: then one short transaction, in which a job whose
    key has a result by now takes that result and says so. What another transaction has locked does not move
    either, and is :func:`still_held`.
    """
    plain = [e for e in ended if not (e.job.awaited or _has_key(e))]
    special = [e for e in ended if e.job.awaited or _has_key(e)] if len(plain) < len(ended) else []
    moved = _write_plain(plain, using=using) if plain else set()
    return moved | _settle_unless_locked(special, using=using) if special else moved


def _write_plain(ended: list[Ended], *, using: str) -> set[int]:
    results = [e.outcome.result for e in ended if isinstance(e.outcome, Succeeded)]
    if len(results) == len(ended):
        return _succeed([e.job for e in ended], results, using=using)
    return _write([(e.job, written(e)) for e in ended], using=using)


def _settle_unless_locked(special: list[Ended], *, using: str) -> set[int]:
    """One transaction for all; one each when somebody holds a lock for long that one of them needs."""
    try:
        return retrying(using, lambda: _settle_special(special, using=using))
    except OperationalError as error:
        if not busy(error):
            raise
    if len(special) == 1:
        return set()
    return set().union(*(_settle_unless_locked([one], using=using) for one in special))


def settle_nothing(*, using: str) -> None:
    """The statement of most settlements, for none: the session is then open, and knows its plan."""
    rows(using, _SUCCEED_WITHOUT_RESULTS_SQL, as_given(()), often=True)


def landed(ended: Sequence[Ended], *, using: str) -> set[int]:
    """Of attempts whose settlement moved no row: the ids whose end this same attempt has written before.

    The answer to a settlement was lost with the connection, or ``ctx.finish`` had settled already.
    """
    params = {
        "ids": [e.job.lease.pk for e in ended],
        "attempts": [e.job.attempt for e in ended],
        "owner": ended[0].job.lease.owner,
    }
    return {pk for (pk,) in rows(using, _LANDED, params)}


def still_held(ended: Sequence[Ended], *, using: str) -> set[int]:
    """Of attempts whose settlement moved no row: the ids that are this worker's all the same, but locked."""
    return {pk for (pk,) in rows(using, _STILL_HELD_SQL, _leases([e.job for e in ended]))}


def written(ended: Ended) -> Written:
    """The columns that an outcome comes to, budgets applied."""
    job, outcome = ended.job, ended.outcome
    match outcome:
        case Succeeded(result=result):
            return Written(JobStatus.SUCCEEDED, result=result)
        case AlreadyExisted(key=key):
            return Written(JobStatus.SUCCEEDED, note=f"result already existed for key {key!r}")
        case Failed(problem=problem):
            return Written(JobStatus.FAILED, problem=problem, note=problem.message[:500])
        case Snoozed(delay=delay, reason=reason):
            return Written(JobStatus.PENDING, delay=delay, refund=1, note=reason[:500] or "snoozed")
        case Raised(problem=problem, delay=delay):
            # Claims that ended with a dead worker are charged to the crash budget, not to this one.
            spent = job.attempt - job.crash_count
            if spent >= job.max_attempts:
                return Written(
                    JobStatus.DEAD,
                    problem=problem,
                    note=f"attempt budget spent: {spent} of {job.max_attempts}",
                )
            return Written(JobStatus.PENDING, problem=problem, delay=delay)
        case Abandoned():
            return Written(
                JobStatus.PENDING, refund=1, note="handed back: the holder could not confirm its lease"
            )
        case Finished():
            raise AssertionError("ctx.finish() has settled this job")
        case _:
            assert_never(outcome)


def _has_key(ended: Ended) -> bool:
    return bool(ended.job.idempotency_key) and isinstance(ended.outcome, Succeeded | AlreadyExisted)


def _settle_special(special: list[Ended], *, using: str) -> set[int]:
    """Jobs whose end is more than their own row: a result under a key, or somebody who waits for it."""
    with transaction.atomic(using=using):
        brief_locks(using)
        found = rows(using, _HOLD_SQL, _leases([e.job for e in special]))  # at once: in id order
        held = {pk for (pk,) in found}
        keyed = [e for e in special if _has_key(e) and e.job.lease.pk in held]
        moved = _settle_keyed(keyed, using=using) if keyed else set()
        others = [(e.job, written(e)) for e in special if not _has_key(e)]
        if others:
            moved |= _write(others, using=using)
        ended = [
            e.job.lease.pk
            for e in special
            if e.job.awaited and e.job.lease.pk in moved and written(e).status is not JobStatus.PENDING
        ]
        announce(sorted(ended), using)
    return moved


def _settle_keyed(keyed: list[Ended], *, using: str) -> set[int]:
    """Jobs with a key whose rows this transaction has locked."""
    jobs = {e.job.lease.pk: e for e in keyed}
    wanted = [
        (str(e.job.idempotency_key), pk, e.outcome.result)
        for pk, e in jobs.items()
        if isinstance(e.outcome, Succeeded)
    ]
    first = produce(keyed[0].job.lease.owner, wanted, using=using) if wanted else set()
    writes = []
    late = {}
    for pk, e in jobs.items():
        if pk in first:
            writes.append((e.job, written(e)))
        else:
            late[pk] = e.job
    for job, (result, note) in zip(late.values(), _existing(list(late.values()), using), strict=True):
        writes.append((job, Written(JobStatus.SUCCEEDED, result=result, note=note)))
    return _write(writes, using=using) if writes else set()


def _existing(jobs: list[ClaimedJob], using: str) -> list[tuple[str | None, str]]:
    """Result (JSON text) and note for jobs whose key came second."""
    if not jobs:
        return []
    found = rows(using, _EXISTING, {"keys": [job.idempotency_key for job in jobs]})
    by_key = {key: (result, job_id, worker) for key, job_id, worker, result in found}
    told = []
    for job in jobs:
        result, job_id, worker = by_key.get(job.idempotency_key, (None, None, "unknown"))
        told.append((result, f"result already existed: produced by job {job_id} on worker {worker}"))
    return told


_GIVEN = f"WITH given AS MATERIALIZED (SELECT * FROM {GIVEN}) "  # noqa: S608
_HOLD_SQL = _GIVEN + _HELD
_STILL_HELD_SQL = _GIVEN + held_rows(_TABLE, locking="OFFSET 0")
_EXISTING = """
SELECT idempotency_key, job_id, produced_by, result::text
FROM pgjobs_jobresult WHERE idempotency_key = ANY(%(keys)s::text[])"""


def _write(writes: list[tuple[ClaimedJob, Written]], *, using: str) -> set[int]:
    jobs = [job for job, _ in writes]
    if all(w.status is JobStatus.SUCCEEDED and not w.note for _, w in writes):
        return _succeed(jobs, [w.result for _, w in writes], using=using)
    params = _leases(jobs)
    prints = [_fingerprint(job, w.problem) for job, w in writes]
    params |= {
        "statuses": [w.status.value for _, w in writes],
        "results": [w.result for _, w in writes],
        "entries": [_entry(w.problem, mark) for (_, w), mark in zip(writes, prints, strict=True)],
        "messages": [_message(w.problem) for _, w in writes],
        "classes": [w.problem and error_class(w.problem) for _, w in writes],
        "fingerprints": prints,
        "delays": [w.delay for _, w in writes],
        "refunds": [w.refund for _, w in writes],
        "notes": [w.note for _, w in writes],
        "max_errors": get_settings().max_errors,
    }
    died = {mark for (_, w), mark in zip(writes, prints, strict=True) if mark and w.status in _BAD_ENDS}
    wanted = _notes.wanted({mark for mark in prints if mark}, died)
    if not wanted:
        return {pk for (pk,) in rows(using, _SETTLE_SQL, params)}
    moved = {pk for (pk,) in rows(using, _SETTLE_NOTED_SQL, {**params, "noted": sorted(wanted)})}
    landed = {mark for (job, _), mark in zip(writes, prints, strict=True) if job.lease.pk in moved and mark}
    transaction.on_commit(lambda: _notes.made(wanted & landed, died), using=using)
    return moved


def _succeed(jobs: list[ClaimedJob], results: list[str | None], *, using: str) -> set[int]:
    params = _leases(jobs)
    if any(result is not None for result in results):
        found = rows(using, _SUCCEED_SQL, params | {"results": results}, often=True)
    else:
        found = rows(using, _SUCCEED_WITHOUT_RESULTS_SQL, params, often=True)
    return {pk for (pk,) in found}


def _leases(jobs: list[ClaimedJob]) -> dict[str, object]:
    return as_given(job.lease for job in jobs)


def error_class(problem: Problem) -> str:
    """What failures are told apart by first: the exception's name, or what else ended the attempt."""
    return problem.type or problem.kind.capitalize()


def _fingerprint(job: ClaimedJob, problem: Problem | None) -> str | None:
    if problem is None:
        return None
    return fingerprint(job.job_type, error_class(problem), problem.frame, problem.message)


def _entry(problem: Problem | None, fingerprint: str | None) -> str | None:
    if problem is None:
        return None
    entry = {
        "kind": problem.kind,
        "type": problem.type,
        "message": problem.message,
        "fingerprint": fingerprint,
    }
    if problem.traceback:
        entry["traceback"] = problem.traceback
    return json.dumps(entry)


def _message(problem: Problem | None) -> str | None:
    if problem is None:
        return None
    return f"{problem.type}: {problem.message}" if problem.type else problem.message
