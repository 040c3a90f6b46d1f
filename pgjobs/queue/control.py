"""What a person, or code in a person's name, may do to jobs. Admin, commands and API all call these."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from functools import partial
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.exceptions import InvalidOption
from pgjobs.leases.fence import LEASE_CLEARED, error_appended
from pgjobs.queue.acting import Expected, Held, JobVerb, VerbOutcome, listed, perform, plain
from pgjobs.queue.authoring import JobOptions
from pgjobs.queue.states import CANCELLABLE, DISCARDABLE, RELEASABLE, RETRYABLE, JobStatus

__all__ = ["Expected", "VerbOutcome", "cancel", "discard", "release", "restore", "retry", "run_now"]

# failed, dead, cancelled -> pending. Fence: the status, under the row's lock. The history stays; a budget that
# is spent is raised by one run, since a retry that could not run would be no retry.
_RETRY = """
UPDATE pgjobs_job AS job
SET status = 'pending', completed_at = NULL, completed_by = NULL, discarded_at = NULL,
    available_at = COALESCE(%(at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s)),
    priority = COALESCE(%(priority)s::smallint, job.priority), queue = COALESCE(%(queue)s::text, job.queue),
    max_attempts = GREATEST(job.max_attempts, COALESCE(%(max_attempts)s, 0),
                            job.attempt_count - job.crash_count + %(room)s),
    max_crashes = GREATEST(job.max_crashes, job.crash_count + 1),
    note = %(note)s
WHERE job.id = ANY(%(ids)s::bigint[]) AND job.status = ANY(%(from)s::text[])"""

_HELD = """unnest(%(ids)s::bigint[], %(statuses)s::text[], %(tokens)s::uuid[]) AS held(id, status, token)
WHERE job.id = ANY(%(ids)s::bigint[]) AND job.id = held.id AND job.status = held.status
  AND job.lease_token IS NOT DISTINCT FROM held.token"""

# pending, running -> cancelled. Fence: the status and token just read, under the row's lock. A holder finds its
# lease gone at its next call.
_CANCEL = f"""
UPDATE pgjobs_job AS job
SET status = 'cancelled', completed_at = clock_timestamp(), note = %(note)s, {LEASE_CLEARED}
FROM {_HELD}"""  # noqa: S608

_RELEASED = """jsonb_build_object('attempt', job.attempt_count, 'kind', 'released', 'message', %(note)s::text,
    'worker', job.lease_owner, 'heartbeat_at', job.heartbeat_at, 'at', clock_timestamp())"""

# running -> pending. Fence: as of cancel. The token is gone, so neither a renewal nor a settlement of the old
# holder finds the row. The attempt stays counted: it began.
_RELEASE = f"""
UPDATE pgjobs_job AS job
SET status = 'pending', available_at = clock_timestamp(), note = %(note)s, last_error = %(note)s,
    errors = {error_appended(_RELEASED, "job")}, {LEASE_CLEARED}
FROM {_HELD}"""  # noqa: S608

# No status changes. Fence: the status, under the row's lock.
_SIMPLE = """
UPDATE pgjobs_job AS job SET {columns}, note = %(note)s
WHERE job.id = ANY(%(ids)s::bigint[]) AND job.status = ANY(%(from)s::text[])"""
_DISCARD = _SIMPLE.format(columns="discarded_at = clock_timestamp()")
_RESTORE = _SIMPLE.format(columns="discarded_at = NULL")
_RUN_NOW = _SIMPLE.format(columns="available_at = statement_timestamp()")


def retry(
    ids: Iterable[int],
    *,
    actor: Any,
    reason: str = "",
    max_attempts: int | None = None,
    more_attempts: int | None = None,
    run_after: dt.datetime | dt.timedelta | None = None,
    priority: int | None = None,
    queue: str | None = None,
    expected: Expected | None = None,
    audited: bool = True,
) -> list[VerbOutcome]:
    """Send jobs that ended without success back to the queue with their history kept: at once, or ``run_after``.

    ``max_attempts`` raises the budget to that many, ``more_attempts`` so that so many are left; without them a spent
    budget gets room for one more run. ``priority`` and ``queue`` move the jobs. Raises :class:`InvalidOption`.
    """
    _check(max_attempts=max_attempts, run_after=run_after, priority=priority, queue=queue)
    _check_more(more_attempts)
    params = {"priority": priority, "queue": queue, "max_attempts": max_attempts, **_moment(run_after)}
    params |= {"room": more_attempts or 1, "from": sorted(RETRYABLE)}
    chosen = {
        "max_attempts": max_attempts,
        "more_attempts": more_attempts,
        "priority": priority,
        "queue": queue,
    }
    verb = JobVerb(
        "retry",
        "retried",
        JobStatus.PENDING,
        lambda job: superseded(job) or _only(RETRYABLE, "retried", job),
        partial(_write, _RETRY, params),
        wakes=True,
        options=_given(**chosen, run_after=None if run_after is None else str(run_after)),
    )
    return perform(verb, ids, actor=actor, reason=reason, expected=expected, audited=audited)


@plain
def cancel() -> JobVerb:
    """Stop jobs that wait or run. A running handler is not killed: it loses its lease and can change nothing."""
    return JobVerb(
        "cancel",
        "cancelled",
        JobStatus.CANCELLED,
        partial(_only, CANCELLABLE, "cancelled"),
        partial(_write, _CANCEL, {}),
        announces=True,
    )


@plain
def release() -> JobVerb:
    """Take running jobs from a holder that is lost or stuck; claimable at once, the attempt kept in ``errors``.

    The old holder's next renewal and its settlement find nothing. A handler that still runs is not killed: until it
    notices, the job may run twice at a time, and only the new holder's effects under the lease land.
    """
    return JobVerb(
        "release",
        "released",
        JobStatus.PENDING,
        partial(_only, RELEASABLE, "released"),
        partial(_write, _RELEASE, {"max_errors": get_settings().max_errors}),
        wakes=True,
    )


@plain
def run_now() -> JobVerb:
    """Make waiting jobs due whose time has yet to come."""

    def refuse(job: Held) -> str:
        due = "it is due already; a worker takes it when it has a free slot"
        return _only({JobStatus.PENDING}, "made due", job) or ("" if job.future else due)

    write = partial(_write, _RUN_NOW, {"from": [JobStatus.PENDING.value]})
    return JobVerb("run_now", "made due", None, refuse, write, wakes=True)


@plain
def discard() -> JobVerb:
    """Put jobs that ended without success out of sight. The rows stay until retention takes them."""

    def refuse(job: Held) -> str:
        return _only(DISCARDABLE, "discarded", job) or ("it is discarded already" if job.discarded else "")

    write = partial(_write, _DISCARD, {"from": sorted(DISCARDABLE)})
    return JobVerb("discard", "discarded", None, refuse, write)


@plain
def restore() -> JobVerb:
    """Bring discarded jobs back into sight, as they ended."""

    def refuse(job: Held) -> str:
        return "" if job.discarded else "it is not discarded"

    write = partial(_write, _RESTORE, {"from": sorted(DISCARDABLE)})
    return JobVerb("restore", "restored", None, refuse, write)


def superseded(job: Any) -> str:
    """Why a job does not run again whose edited copy has its work: with both, that would be done twice."""
    if job.superseded_by is None:
        return ""
    return f"job {job.superseded_by} was made from it with another payload; go on with that one"


def _only(states: Iterable[JobStatus], done: str, job: Held) -> str:
    """Why a job in another state is left alone."""
    return "" if job.status in states else f"it is {job.status}; only {listed(states)} jobs can be {done}"


def _write(sql: str, params: dict[str, Any], jobs: list[Held], note: str, using: str) -> None:
    given = {
        "ids": [job.pk for job in jobs],
        "statuses": [job.status.value for job in jobs],
        "tokens": [job.token for job in jobs],
        "note": note,
    }
    rows(using, sql, {**params, **given})


def _moment(run_after: dt.datetime | dt.timedelta | None) -> dict[str, Any]:
    """An instant, or a delay that the database adds to its own clock."""
    if isinstance(run_after, dt.datetime):
        return {"at": run_after, "delay": 0.0}
    return {"at": None, "delay": run_after.total_seconds() if run_after else 0.0}


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check(**options: Any) -> None:
    """Raises :class:`InvalidOption` as ``using()`` would."""
    JobOptions(**_given(**options))


def _check_more(more: Any) -> None:
    if more is not None and (type(more) is not int or not 1 <= more <= 10_000):
        raise InvalidOption("more_attempts", more, "give a whole number from 1 to 10,000.")
