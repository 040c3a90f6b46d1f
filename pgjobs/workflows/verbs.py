"""The verbs of executions, as every face calls them: each takes who and why, and answers for each id.

``expected`` is status and attempt_count by id, as the person saw them; what stands otherwise is left, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.exceptions import InvalidOption, WorkflowError
from pgjobs.queue.control import VerbOutcome
from pgjobs.workflows import forking, messages
from pgjobs.workflows.approvals import decide
from pgjobs.workflows.continuing import last_of_chain
from pgjobs.workflows.control import cancel, pause, resume, retry
from pgjobs.workflows.expected import Expected
from pgjobs.workflows.models import Execution
from pgjobs.workflows.outcome import wait_for_result

logger = logging.getLogger("pgjobs.control")

__all__ = ["Forked", "Verbs", "cancel", "decide", "fork", "pause", "resume", "retry", "retry_from", "signal"]

retry_from = retry
"""A retry goes on from the call that failed; from an earlier one, :func:`fork`: what is recorded stays."""


@dataclass(frozen=True, slots=True)
class Forked(VerbOutcome):
    """What came of a fork; ``status`` is that of the execution that was forked, which stays as it is."""

    fork_id: int | None = None
    """The new execution."""


def fork(
    ids: Iterable[int],
    *,
    from_step: str | int | None = None,
    actor: Any,
    reason: str = "",
    expected: Expected | None = None,
) -> list[Forked]:
    """Fork each execution from a call: a step id, a name that is there once, or an ordinal; None: where it failed."""
    using = get_settings().database
    outcomes = []
    for pk in sorted({int(pk) for pk in ids}):
        try:
            place = forking.place_of(pk, from_step, using=using)
            seen = (expected or {}).get(pk)
            new = forking.fork(pk, from_ordinal=place, actor=actor, reason=reason, expected=seen)
        except (WorkflowError, InvalidOption) as error:
            outcomes.append(Forked(pk, False, str(error), _status(pk, using)))
        else:
            told = f"forked from call {place} as execution {new.pk}"
            outcomes.append(Forked(pk, True, told, _status(pk, using), new.pk))
    return outcomes


def signal(
    ids: Iterable[int], name: str, payload: Any = None, *, actor: Any, expected: Expected | None = None
) -> list[VerbOutcome]:
    """Send a signal to each execution. Raises :class:`InvalidOption` or :class:`NotStorable`; then none was sent."""
    using = get_settings().database
    outcomes = []
    for pk in sorted({int(pk) for pk in ids}):
        try:
            messages.send(pk, name, payload, expected=(expected or {}).get(pk))
        except WorkflowError as error:
            outcomes.append(VerbOutcome(pk, False, str(error), _status(pk, using)))
        else:
            outcomes.append(VerbOutcome(pk, True, f"{name!r} was sent", _status(pk, using)))
    for outcome in outcomes:
        logger.info("execution=%s verb=signal name=%s done=%s by=%s", outcome.id, name, outcome.done, actor)
    return outcomes


def _status(pk: int, using: str) -> str | None:
    return Execution._base_manager.using(using).filter(pk=pk).values_list("status", flat=True).first()


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
