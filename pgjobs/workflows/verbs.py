"""The verbs of executions, as every face calls them: each takes who and why, and answers for each id.

``expected`` is status and attempt_count by id, as the person saw them; what stands otherwise is left, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import transaction

from pgjobs.conf import get_settings
from pgjobs.exceptions import InvalidOption, WorkflowError
from pgjobs.queue.acting import LARGEST_ID, Expected, VerbOutcome, record_outcomes
from pgjobs.workflows import forking, messages
from pgjobs.workflows.approvals import decide
from pgjobs.workflows.continuing import last_of_chain
from pgjobs.workflows.control import cancel, lock_family, pause, resume, retry
from pgjobs.workflows.expected import difference
from pgjobs.workflows.models import Execution
from pgjobs.workflows.outcome import wait_for_result

logger = logging.getLogger("pgjobs.control")

__all__ = ["Verbs", "cancel", "decide", "fork", "pause", "resume", "retry", "retry_from", "signal"]

retry_from = retry
"""A retry goes on from the call that failed; from an earlier one, :func:`fork`: what is recorded stays."""


def fork(
    ids: Iterable[int],
    *,
    from_step: str | int | None = None,
    actor: Any,
    reason: str = "",
    cancel_source: bool = False,
    expected: Expected | None = None,
    audited: bool = True,
) -> list[VerbOutcome]:
    """Fork each execution from a call: a step id, a name that is there once, or an ordinal; None: where it failed.

    ``made`` of an outcome is the id of the new execution; ``status`` is that of the old one, which stays as it is
    unless ``cancel_source`` stops it in the same commit. One that cannot be cancelled is not forked either.
    """

    def act(pk: int, using: str) -> tuple[str, int | None]:
        place = forking.place_of(pk, from_step, using=using)
        seen = (expected or {}).get(pk)
        new = forking.fork(pk, from_ordinal=place, actor=actor, reason=reason, expected=seen)
        told = f"forked from call {place} as execution {new.pk}"
        if cancel_source:
            # After the copy: jobs that the fork awaits too are left to it.
            (left,) = cancel([pk], actor=actor, reason=reason)
            if not left.done:
                raise WorkflowError(
                    f"execution {pk} cannot be cancelled: {left.message}. Nothing was forked."
                )
            told = f"{told}, and cancelled"
        return told, new.pk

    details = {"from_step": from_step, "cancel_source": cancel_source or None}
    given = {name: value for name, value in details.items() if value is not None}
    wanted = sorted({int(pk) for pk in ids})
    with transaction.atomic(using=get_settings().database):
        if (
            cancel_source
        ):  # a parent that waits may have the lower id: all are locked in order, before the first
            lock_family(wanted, None, get_settings().database)
        return _each("fork", wanted, act, actor, reason, expected, given, audited)


def signal(
    ids: Iterable[int],
    name: str,
    payload: Any = None,
    *,
    actor: Any,
    reason: str = "",
    expected: Expected | None = None,
    audited: bool = True,
) -> list[VerbOutcome]:
    """Send a signal to each execution. Raises :class:`InvalidOption` or :class:`NotStorable`; then none was sent."""
    messages.check(name, payload)

    def act(pk: int, using: str) -> tuple[str, int | None]:
        messages.send(pk, name, payload, expected=(expected or {}).get(pk))
        return f"{name!r} was sent", None

    return _each("signal", ids, act, actor, reason, expected, {"name": name}, audited)


def _each(
    verb: str,
    ids: Iterable[int],
    act: Callable[[int, str], tuple[str, int | None]],
    actor: Any,
    reason: str,
    expected: Expected | None,
    details: Mapping[str, Any] | None,
    audited: bool,
) -> list[VerbOutcome]:
    """Do it to each in one transaction; one that refuses does not keep the others from it.

    Locks: in the order of the ids under which they go on now, as everywhere.
    """
    using, outcomes = get_settings().database, []
    with transaction.atomic(using=using):
        for pk in sorted({int(pk) for pk in ids}, key=lambda pk: _present(pk, using)):
            try:
                with transaction.atomic(using=using):
                    told, made = act(pk, using)
            except (WorkflowError, InvalidOption) as error:
                outcomes.append(_refused(pk, str(error), expected, using))
            else:
                outcomes.append(VerbOutcome(pk, True, told, _standing(pk, using)[0], made=made))
        if audited and outcomes:
            record_outcomes("execution", verb, outcomes, actor=actor, reason=reason, details=details)
    for outcome in outcomes:
        logger.info("execution=%s verb=%s done=%s by=%s", outcome.id, verb, outcome.done, actor)
    return sorted(outcomes, key=lambda outcome: outcome.id)


def _present(pk: int, using: str) -> int:
    return last_of_chain(pk, using=using) if 0 < pk <= LARGEST_ID else pk


def _refused(pk: int, told: str, expected: Expected | None, using: str) -> VerbOutcome:
    status, attempt_count = _standing(pk, using)
    changed = status is not None and difference((expected or {}).get(pk), status, attempt_count)
    return VerbOutcome(pk, False, told, status, conflict=bool(changed))


def _standing(pk: int, using: str) -> tuple[str | None, int]:
    found = Execution._base_manager.using(using).filter(pk=pk)
    return found.values_list("status", "attempt_count").first() or (None, 0)


class Verbs:
    """What the methods of an execution do. Implements :class:`pgjobs.workflows.values.ExecutionVerbs`."""

    def signal(self, pk: int, name: str, payload: Any) -> None:
        """Send a signal."""
        messages.send(pk, name, payload)

    def cancel(self, pk: int, *, actor: Any, reason: str) -> bool:
        """Stop it, or the one as which it goes on; False when that had ended."""
        using = get_settings().database
        while True:
            pk = last_of_chain(pk, using=using)
            # It may continue as new just before it is locked; then the next one is the one to stop.
            if cancel([pk], actor=actor, reason=reason)[0].done:
                return True
            if last_of_chain(pk, using=using) == pk:
                return False

    def result(self, pk: int, timeout: float | None) -> Any:
        """Wait for the end and return the output."""
        return wait_for_result(pk, timeout)
