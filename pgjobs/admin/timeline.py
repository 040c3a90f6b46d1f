"""What an execution has done and waits for, call by call, for its page. Bounded, whatever the history holds."""

from __future__ import annotations

from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast, Left, Now
from django.urls import reverse

from pgjobs.admin.ages import in_words
from pgjobs.conf import get_settings
from pgjobs.workflows.models import StepOutput, Wait
from pgjobs.workflows.states import WaitKind

MOST = 500
"""Calls shown; later ones are in the tables."""

_CHARACTERS = 200


def of(execution: Any) -> dict[str, Any]:
    """The rows of the table, and whether there are more."""
    using = get_settings().database
    steps = StepOutput._base_manager.using(using).filter(execution=execution).order_by("ordinal", "id")
    waits = Wait._base_manager.using(using).filter(execution=execution).order_by("ordinal", "id")
    found = [
        *map(
            _step,
            steps.annotate(told=_start("output"), failed=_start("error")).defer("output", "error")[
                : MOST + 1
            ],
        ),
        *map(
            _wait,
            waits.annotate(told=_start("resolution"), clock=Now()).defer("resolution", "context", "rule")[
                : MOST + 1
            ],
        ),
    ]
    found.sort(key=lambda row: (row["call"], row["at"]))
    return {"rows": found[:MOST], "more": len(found) > MOST, "most": MOST}


def _start(column: str) -> Left:
    return Left(Cast(column, TextField()), _CHARACTERS)


def _step(step: Any) -> dict[str, Any]:
    runs = f"{step.attempts} {'attempt' if step.attempts == 1 else 'attempts'}, the last took {step.seconds:.3g} s"
    return {
        "call": step.ordinal,
        "step": step.step_id,
        "kind": step.get_kind_display(),
        "at": step.recorded_at,
        "state": "failed" if step.failed else "recorded",
        "told": step.failed or step.told or "",
        "more": runs,
    }


def _wait(wait: Any) -> dict[str, Any]:
    row = {
        "call": wait.ordinal,
        "step": wait.step_id,
        "kind": wait.get_kind_display(),
        "at": wait.resolved_at or wait.created_at,
        "state": "resolved" if wait.resolved_at else f"open for {in_words(wait.clock - wait.created_at)}",
        "told": wait.told or wait.name,
        "more": "",
    }
    if wait.resolved_at is None and wait.wake_at:
        due = wait.wake_at - wait.clock
        row["more"] = f"due in {in_words(due)}" if due.total_seconds() > 0 else f"overdue by {in_words(due)}"
    if wait.kind == WaitKind.APPROVAL:
        row["url"] = reverse("admin:pgjobs_wait_change", args=[wait.pk])
        if wait.decided_by:
            row["state"] = f"{'approved' if wait.approved else 'rejected'} by {wait.decided_by}"
            row["told"] = wait.reason
    return row
