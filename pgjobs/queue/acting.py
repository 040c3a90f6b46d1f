"""How every verb on jobs goes: lock, compare with what the person saw, move, announce, record; per job an outcome."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from django.db import transaction

from pgjobs.codec import storable_text
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.queue import audit
from pgjobs.queue.archive import archived_among
from pgjobs.queue.awaited import announce
from pgjobs.queue.enqueue import notify
from pgjobs.queue.states import JobStatus

logger = logging.getLogger("pgjobs.control")

LARGEST_ID = 2**63 - 1
NOTE_BYTES = 1_000

Expected = Mapping[int, tuple[str, int]]
"""By id, the status and attempt_count that the person saw. A job that has moved on since is left alone."""


@dataclass(frozen=True, slots=True)
class VerbOutcome:
    """What a verb did to one job."""

    id: int
    done: bool
    message: str
    status: str | None
    """The job's status now; None when there is no such job."""
    conflict: bool = False
    """Whether it was left alone because of what happened meanwhile, or of another row."""
    made: int | None = None
    """The id of the row that the verb has made."""

    @property
    def result(self) -> str:
        """In one word: "done", "skipped" (the verb does not apply) or "conflict"."""
        return "done" if self.done else "conflict" if self.conflict else "skipped"


@dataclass(frozen=True, slots=True)
class Held:
    """A job whose row is locked, as it stood then."""

    pk: int
    status: JobStatus
    attempt: int
    token: uuid.UUID | None
    owner: str | None
    awaited: bool
    discarded: bool
    future: bool
    """Whether its time has yet to come."""
    superseded_by: int | None
    """The edited copy that stands in its place."""

    def now(self) -> str:
        """In words, for somebody who saw something else."""
        holder = f", {self.owner}" if self.owner else ""
        return f"{self.status} (attempt {self.attempt}{holder})"


@dataclass(frozen=True, slots=True)
class JobVerb:
    """One thing that may be done to jobs."""

    name: str
    done: str
    target: JobStatus | None
    """The status it leads to; None when that stays."""
    refuse: Callable[[Held], str]
    """Why it does not apply to a job; an empty text when it does."""
    write: Callable[[list[Held], str, str], None]
    """Moves held jobs. Takes them, the note and the database alias."""
    announces: bool = False
    """Whether it ends jobs, so that whoever awaits them is told."""
    wakes: bool = False
    """Whether jobs become claimable."""
    options: Mapping[str, Any] | None = None
    """What the person chose, for the audit."""


class Plain(Protocol):
    """A verb of which nothing may be chosen."""

    def __call__(
        self,
        ids: Iterable[int],
        *,
        actor: Any,
        reason: str = "",
        expected: Expected | None = None,
        audited: bool = True,
    ) -> list[VerbOutcome]:
        """Do it to jobs."""
        ...


def plain(verb: Callable[[], JobVerb]) -> Plain:
    """The verb that ``verb`` describes, under its name and with its words."""

    def act(
        ids: Iterable[int],
        *,
        actor: Any,
        reason: str = "",
        expected: Expected | None = None,
        audited: bool = True,
    ) -> list[VerbOutcome]:
        return perform(verb(), ids, actor=actor, reason=reason, expected=expected, audited=audited)

    for name in ("__module__", "__name__", "__qualname__", "__doc__"):  # not the signature, as wraps would
        setattr(act, name, getattr(verb, name))
    return act


_HOLD = """
SELECT id, status, attempt_count, lease_token, lease_owner, awaited, discarded_at IS NOT NULL,
       available_at > statement_timestamp(), superseded_by
FROM pgjobs_job WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR NO KEY UPDATE"""


def perform(
    verb: JobVerb,
    ids: Iterable[int],
    *,
    actor: Any,
    reason: str,
    expected: Expected | None = None,
    audited: bool = True,
) -> list[VerbOutcome]:
    """Do ``verb`` to jobs in one transaction, and say per job what came of it.

    Locks: jobs in id order; then whoever awaits them. ``audited=False`` is for a caller that records the operation of
    which this is a part.
    """
    using = get_settings().database
    wanted = sorted({int(pk) for pk in ids})
    note = storable_text(f"{verb.done} by {actor}" + (f": {reason}" if reason else ""), NOTE_BYTES)
    with transaction.atomic(using=using):
        held = _hold(wanted, using)
        missing = [pk for pk in wanted if pk not in held]
        archived = archived_among(missing, using=using) if missing else {}
        outcomes = [
            _judged(verb, held[pk], expected) if pk in held else _not_there(pk, verb, archived.get(pk))
            for pk in wanted
        ]
        moving = [held[outcome.id] for outcome in outcomes if outcome.done]
        if moving:
            verb.write(moving, note, using)
            if verb.announces:
                announce([job.pk for job in moving if job.awaited], using)
            if verb.wakes and get_settings().notify:
                notify(using=using)
        if audited and wanted:
            record_outcomes("job", verb.name, outcomes, actor=actor, reason=reason, details=verb.options)
    for outcome in outcomes:
        logger.info("job=%s verb=%s done=%s by=%s", outcome.id, verb.name, outcome.done, actor)
    return outcomes


def record_outcomes(
    target_kind: str,
    verb: str,
    outcomes: list[VerbOutcome],
    *,
    actor: Any,
    reason: str,
    details: Mapping[str, Any] | None = None,
) -> None:
    """One row of the audit for a whole operation. To be called in the transaction that did it."""
    counts = {
        result: sum(each.result == result for each in outcomes) for result in ("done", "skipped", "conflict")
    }
    told = {str(each.id): each.message for each in outcomes[: audit.MOST_IDS]}
    audit.record(
        verb,
        target_kind=target_kind,
        target_ids=[outcome.id for outcome in outcomes],
        actor=actor,
        reason=reason,
        done=counts["done"],
        skipped=counts["skipped"],
        refused=counts["conflict"],
        details={**(details or {}), "outcomes": told},
    )


def listed(states: Iterable[str]) -> str:
    """Statuses in a sentence."""
    return ", ".join(sorted(states))


def _hold(ids: list[int], using: str) -> dict[int, Held]:
    possible = [pk for pk in ids if 0 < pk <= LARGEST_ID]
    if not possible:
        return {}
    found = rows(using, _HOLD, {"ids": possible})
    return {pk: Held(pk, JobStatus(status), *rest) for pk, status, *rest in found}


def _judged(verb: JobVerb, job: Held, expected: Expected | None) -> VerbOutcome:
    """What is about to be done, or why nothing is."""
    if expected is not None and job.pk in expected:
        status, attempt = expected[job.pk]
        if (status, attempt) != (job.status, job.attempt):
            saw = status if status != job.status else f"{status} (attempt {attempt})"
            message = f"it was {saw} when you looked; it is now {job.now()}"
            return VerbOutcome(job.pk, False, message, job.status.value, conflict=True)
    if refused := verb.refuse(job):
        return VerbOutcome(job.pk, False, refused, job.status.value)
    status = job.status.value if verb.target is None else verb.target.value
    return VerbOutcome(job.pk, True, f"{verb.done} (was {job.status})", status)


def _not_there(pk: int, verb: JobVerb, archived: tuple[str, str] | None) -> VerbOutcome:
    if archived is None:
        return VerbOutcome(pk, False, "there is no such job", None)
    status, day = archived
    advice = "; enqueue a new job with its payload instead" if verb.name == "retry" else ""
    return VerbOutcome(
        pk,
        False,
        f"it is {status} and was archived on {day}; archived jobs cannot be {verb.done}{advice}",
        status,
    )
