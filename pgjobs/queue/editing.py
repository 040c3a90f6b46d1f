"""Edit and retry: the edited payload becomes a new job; the old row keeps what it ran with, as evidence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.exceptions import SignatureMismatch
from pgjobs.queue.acting import LARGEST_ID, Held, JobVerb, VerbOutcome, listed, perform
from pgjobs.queue.authoring import JobOptions
from pgjobs.queue.binding import Binding
from pgjobs.queue.control import superseded
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.registry import registry
from pgjobs.queue.states import RETRYABLE
from pgjobs.redaction import merged

# What is not given is as it was; budgets too, since history is the other row's.
_COPY = """
INSERT INTO pgjobs_job (job_type, queue, priority, max_attempts, max_crashes, available_at, payload, idempotency_key,
                        copied_from, note)
SELECT job_type, COALESCE(%(queue)s::text, queue), COALESCE(%(priority)s::smallint, priority),
       COALESCE(%(max_attempts)s::int, max_attempts), max_crashes,
       COALESCE(%(at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s)), %(payload)s::jsonb,
       idempotency_key, id, %(note)s
FROM pgjobs_job WHERE id = %(id)s RETURNING id"""

# The status stays. Fence: it was read under the row's lock, which is held.
_SUPERSEDE = """
UPDATE pgjobs_job SET superseded_by = %(copy)s, discarded_at = clock_timestamp(), note = %(note)s
WHERE id = %(id)s AND status = ANY(%(from)s::text[])"""


def edit_copy(
    pk: int,
    payload: Mapping[str, Any],
    *,
    actor: Any,
    reason: str = "",
    max_attempts: int | None = None,
    run_after: dt.datetime | dt.timedelta | None = None,
    priority: int | None = None,
    queue: str | None = None,
    expected: tuple[str, int] | None = None,
) -> VerbOutcome:
    """Enqueue a job that ended without success anew with another ``payload``; ``made`` of the outcome is its id.

    ``payload`` is in the form of the column: JSON, with the tags of :mod:`pgjobs.codec`; where it holds the mark of
    redaction, what is stored is kept. The old row is kept as it ran, discarded, and says what superseded it. An
    idempotency key goes over to the copy. Raises :class:`SignatureMismatch`, :class:`NotStorable`, :class:`MarkLeft`
    or :class:`UnknownJobType` for a payload that the handler cannot take, and :class:`InvalidOption`.
    """
    given: dict[str, Any] = {
        "max_attempts": max_attempts,
        "run_after": run_after,
        "priority": priority,
        "queue": queue,
    }
    JobOptions(**{name: value for name, value in given.items() if value is not None})
    using = get_settings().database
    params = {**given, "at": None, "delay": 0.0}
    if isinstance(run_after, dt.datetime):
        params["at"] = run_after
    elif run_after is not None:
        params["delay"] = run_after.total_seconds()
    with transaction.atomic(using=using):
        found = Job._base_manager.using(using).filter(pk=pk if 0 < pk <= LARGEST_ID else 0)
        old = found.select_for_update(no_key=True).first()
        if old is not None:
            payload = merged(payload, old.payload, job_type=old.job_type)
            params["payload"] = _checked(old, payload)
        verb, made = _verb(old, params, _changed(old, payload), actor, reason)
        [outcome] = perform(
            verb, [pk], actor=actor, reason=reason, expected=None if expected is None else {pk: expected}
        )
    if not outcome.done:
        return outcome
    return replace(
        outcome, message=f"copied as job {made[0]} {outcome.message.removeprefix('copied ')}", made=made[0]
    )


def _verb(
    old: Job | None, params: Mapping[str, Any], changed: list[str], actor: Any, reason: str
) -> tuple[JobVerb, list[int]]:
    made: list[int] = []

    def refuse(job: Held) -> str:
        if job.status not in RETRYABLE:
            return f"it is {job.status}; only {listed(RETRYABLE)} jobs can be copied with another payload"
        if why := superseded(job):
            return why
        return _produced(old) if old is not None else ""

    def write(jobs: list[Held], note: str, using: str) -> None:
        [job] = jobs
        told = f" by {actor}" + (f": {reason}" if reason else "")
        copy_note = codec.storable_text(f"edited copy of job {job.pk}{told}", 1_000)
        ((copy,),) = rows(using, _COPY, {**params, "id": job.pk, "note": copy_note})
        old_note = codec.storable_text(f"superseded by job {copy}{told}", 1_000)
        supersede = {"copy": copy, "id": job.pk, "note": old_note, "from": sorted(RETRYABLE)}
        rows(using, _SUPERSEDE, supersede)
        made.append(copy)
        options["copy"] = copy

    options: dict[str, Any] = {"changed": changed}
    return JobVerb("edit_copy", "copied", None, refuse, write, wakes=True, options=options), made


def _produced(old: Job) -> str:
    """Why a copy would not run: the key's result is there."""
    if not old.idempotency_key:
        return ""
    results = JobResult._base_manager.using(get_settings().database)
    produced = results.filter(pk=old.idempotency_key).values_list("job_id", flat=True).first()
    if produced is None:
        return ""
    return (
        f"job {produced} has produced the result of its idempotency key {old.idempotency_key!r}, so a copy would not "
        f"run; enqueue a new job under another key"
    )


def _checked(old: Job, payload: Any) -> str:
    """The payload as JSON text, once the handler has been found able to take it."""
    binding = Binding(registry.get(old.job_type))
    arguments = codec.decode(payload)
    if not isinstance(arguments, dict):
        raise SignatureMismatch(
            old.job_type,
            str(binding.signature),
            f"a {type(arguments).__name__} is not an object of arguments",
        )
    arguments = binding.bind((), arguments)
    return codec.dumps(arguments, label="payload", max_bytes=get_settings().max_payload_bytes)


def _changed(old: Job | None, payload: Mapping[str, Any]) -> list[str]:
    """The names of arguments that differ. Values are not for the audit."""
    before = old.payload if old is not None and isinstance(old.payload, dict) else {}
    names = {*before, *payload}
    return sorted(name for name in names if before.get(name, _NOTHING) != payload.get(name, _NOTHING))


_NOTHING = object()
