"""What people did, as sentences, for the pages of what they did it to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from pgjobs.admin.ages import moment
from pgjobs.admin.limits import Panel, panel
from pgjobs.conf import get_settings
from pgjobs.queue.models import OperatorAction
from pgjobs.redaction import redacted_text
from pgjobs.workflows.models import Wait
from pgjobs.workflows.states import WaitKind

SHOWN = 20
_LOOKED = 50
_CLEARING = {("job", "retry"), ("job", "discard"), ("job", "edit_copy"), ("bulk", "start")}


Hide = Callable[[str], str]
"""Takes the secrets out of a text: those that a page knows by its payload too."""


def panel_of(kind: str, target: int | str, clock: datetime, hide: Hide = redacted_text) -> Panel:
    """The latest operations on one target."""
    return panel(lambda: _latest_of(_on(kind, target), clock, hide))


def panel_of_execution(pk: int, clock: datetime, hide: Hide) -> Panel:
    """The latest operations on one execution, decisions on its approvals among them."""

    def read() -> list[dict[str, Any]]:
        asked = Wait._base_manager.using(get_settings().database).filter(execution=pk, kind=WaitKind.APPROVAL)
        condition = _on("execution", pk)
        for approval in asked.order_by("-pk").values_list("pk", flat=True)[:SHOWN]:
            condition |= _on("approval", approval)
        return _latest_of(condition, clock, hide)

    return panel(read)


def _on(kind: str, target: int | str) -> Q:
    return Q(target_kind=kind, target_ids__contains=[target])


def _latest_of(condition: Q, clock: datetime, hide: Hide) -> list[dict[str, Any]]:
    return [_line(each, clock, hide) for each in _rows().filter(condition)[:SHOWN]]


def latest(most: int) -> list[dict[str, Any]]:
    """The latest operations on anything."""
    return [_line(each, each.clock) for each in _rows().annotate(clock=Now())[:most]]


def last_cleared() -> dict[str, Any] | None:
    """The latest operation that took failed jobs out of sight, among the latest of all; None when there is none."""
    for each in _rows().annotate(clock=Now())[:_LOOKED]:
        if each.done and (each.target_kind, each.verb) in _CLEARING:
            return _line(each, each.clock)
    return None


def sentence(action: Any, hide: Hide = redacted_text) -> str:
    """Who did what, why, and what came of it: "ana: retry of 3 jobs: done 2, skipped 1 (stripe is back)"."""
    details = action.details if isinstance(action.details, dict) else {}
    reason = f": {hide(action.reason)}" if action.reason else ""
    if action.verb == "decide" and "step" in details:
        verb = "approve" if details.get("approved") else "reject"
        told = "" if action.done else f" ({hide(str(details.get('told')))})"
        place = f"approval {action.target_ids[0]}, step {details['step']}"
        return f"{action.actor}: {verb} {place}, {result(action)}{told}{reason}"
    shown = ", ".join(str(each) for each in action.target_ids[:3])
    kind = action.get_target_kind_display()
    what = f"{kind} {shown}" if action.target_count <= 3 else f"{action.target_count:,} × {kind}"
    told = result(action)
    return f"{action.actor}: {action.verb.replace('_', ' ')} {what}, {told}{reason}"


def result(action: Any) -> str:
    """What came of it."""
    missing = (action.details or {}).get("missing_permission")
    if missing:
        return f"refused for want of {missing}"
    parts = [f"{name} {number}" for name, number in _numbers(action) if number]
    return ", ".join(parts) or "nothing done"


def _numbers(action: Any) -> list[tuple[str, int]]:
    return [("done", action.done), ("skipped", action.skipped), ("refused", action.refused)]


def _rows() -> QuerySet[OperatorAction]:
    return OperatorAction._base_manager.using(get_settings().database).order_by("-pk")


def _line(action: Any, clock: datetime, hide: Hide = redacted_text) -> dict[str, Any]:
    return {"at": moment(action.at, clock), "sentence": sentence(action, hide)}
