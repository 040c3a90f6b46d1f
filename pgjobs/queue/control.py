"""What a person, or code in a person's name, may do to jobs. Admin, commands and API all call these."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction

from pgjobs.codec import storable_text
from pgjobs.conf import get_settings
from pgjobs.exceptions import InvalidOption
from pgjobs.leases.fence import LEASE_CLEARED
from pgjobs.queue.archive import archived_among
from pgjobs.queue.awaited import announce
from pgjobs.queue.enqueue import CHANNEL
from pgjobs.queue.models import Job
from pgjobs.queue.states import CANCELLABLE, RETRYABLE, JobStatus

logger = logging.getLogger("pgjobs.control")


@dataclass(frozen=True, slots=True)
class VerbOutcome:
    """What a verb did to one job."""

    id: int
    done: bool
    message: str
    status: str | None
    """The job's status now; None when there is no such job."""


# failed, dead, cancelled -> pending. Fence: the status, under the row's lock. The history stays; a budget that
# is spent is raised by one run, since a retry that could not run would be no retry.
_RETRY = """
UPDATE pgjobs_job AS job
SET status = 'pending', available_at = statement_timestamp(), completed_at = NULL, completed_by = NULL,
    max_attempts = GREATEST(job.max_attempts, COALESCE(%(max_attempts)s, 0),
                            job.attempt_count - job.crash_count + 1),
    max_crashes = GREATEST(job.max_crashes, job.crash_count + 1),
    note = %(note)s
WHERE job.id = %(id)s AND job.status = ANY(%(from)s::text[])"""

# pending, running -> cancelled. Fence: the status and token just read, under the row's lock. A holder finds its
# lease gone at its next call.
_CANCEL = f"""
UPDATE pgjobs_job AS job
SET status = 'cancelled', completed_at = clock_timestamp(), note = %(note)s, {LEASE_CLEARED}
WHERE job.id = %(id)s AND job.status = %(status)s
  AND job.lease_token IS NOT DISTINCT FROM %(token)s::uuid"""  # noqa: S608


def retry(
    ids: Iterable[int], *, actor: Any, reason: str = "", max_attempts: int | None = None
) -> list[VerbOutcome]:
    """Send jobs that ended without success back to the queue, claimable at once, with their history kept.

    ``max_attempts`` raises the budget; without it a spent budget gets room for one more run.
    """
    if max_attempts is not None and (type(max_attempts) is not int or not 1 <= max_attempts <= 10_000):
        raise InvalidOption("max_attempts", max_attempts, "give a whole number from 1 to 10,000.")

    def act(pk: int, status: JobStatus, token: uuid.UUID | None, note: str, using: str) -> str:
        if status not in RETRYABLE:
            return f"it is {status}; only {_listed(RETRYABLE)} jobs can be retried"
        params = {"id": pk, "max_attempts": max_attempts, "note": note, "from": sorted(RETRYABLE)}
        _execute(using, _RETRY, params)
        return ""

    outcomes = _each(ids, act, "retried", actor, reason)
    if get_settings().notify and any(outcome.done for outcome in outcomes):
        _execute(get_settings().database, f"NOTIFY {CHANNEL}", None)
    return outcomes


def cancel(ids: Iterable[int], *, actor: Any, reason: str = "") -> list[VerbOutcome]:
    """Stop jobs that wait or run. A running handler is not killed: it loses its lease and can change nothing."""

    def act(pk: int, status: JobStatus, token: uuid.UUID | None, note: str, using: str) -> str:
        if status not in CANCELLABLE:
            return f"it is {status}; only {_listed(CANCELLABLE)} jobs can be cancelled"
        _execute(using, _CANCEL, {"id": pk, "status": status.value, "token": token, "note": note})
        return ""

    return _each(ids, act, "cancelled", actor, reason)


def _each(ids: Iterable[int], act: Any, done: str, actor: Any, reason: str) -> list[VerbOutcome]:
    """Lock the jobs in id order, let ``act`` move each, and say per job what came of it."""
    using = get_settings().database
    wanted = sorted({int(pk) for pk in ids})
    note = storable_text(f"{done} by {actor}" + (f": {reason}" if reason else ""), 1_000)
    outcomes = []
    cancelled: list[int] = []
    with transaction.atomic(using=using):
        found = {
            pk: (JobStatus(status), token)
            for pk, status, token in Job._base_manager.using(using)
            .filter(pk__in=wanted)
            .order_by("pk")
            .select_for_update(no_key=True)
            .values_list("pk", "status", "lease_token")
        }
        missing = [pk for pk in wanted if pk not in found]
        archived = archived_among(missing, using=using) if missing else {}
        for pk in wanted:
            if pk not in found:
                outcomes.append(_not_there(pk, done, archived.get(pk)))
                continue
            status, token = found[pk]
            refused = act(pk, status, token, note, using)
            now = status.value if refused else {"retried": "pending", "cancelled": "cancelled"}[done]
            if done == "cancelled" and not refused:
                cancelled.append(pk)
            outcomes.append(VerbOutcome(pk, not refused, refused or f"{done} (was {status})", now))
        awaited = Job._base_manager.using(using).filter(pk__in=cancelled, awaited=True)
        announce(sorted(awaited.values_list("pk", flat=True)) if cancelled else [], using)
    for outcome in outcomes:
        logger.info("job=%s verb=%s done=%s by=%s", outcome.id, done, outcome.done, actor)
    return outcomes


def _not_there(pk: int, done: str, archived: tuple[str, str] | None) -> VerbOutcome:
    if archived is None:
        return VerbOutcome(pk, False, "there is no such job", None)
    status, day = archived
    advice = "; enqueue a new job with its payload instead" if done == "retried" else ""
    return VerbOutcome(
        pk, False, f"it is {status} and was archived on {day}; archived jobs cannot be {done}{advice}", status
    )


def _execute(using: str, sql: str, params: dict[str, Any] | None) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)


def _listed(states: frozenset[JobStatus]) -> str:
    return ", ".join(sorted(state.value for state in states))
