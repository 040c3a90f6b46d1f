"""What people did, as sentences, for the pages of what they did it to."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from pgjobs.admin.ages import moment
from pgjobs.admin.limits import Panel, panel
from pgjobs.conf import get_settings
from pgjobs.queue.models import OperatorAction

SHOWN = 20
_LOOKED = 50
_CLEARING = {("job", "retry"), ("job", "discard"), ("job", "edit_copy"), ("bulk", "start")}


def panel_of(kind: str, target: int | str, clock: datetime) -> Panel:
    """The latest operations on one target."""
    found = _rows().filter(target_kind=kind, target_ids__contains=[target])
    return panel(lambda: [_line(each, clock) for each in found[:SHOWN]])


def latest(most: int) -> list[dict[str, Any]]:
    """The latest operations on anything."""
    return [_line(each, each.clock) for each in _rows().annotate(clock=Now())[:most]]


def last_cleared() -> dict[str, Any] | None:
    """The latest operation that took failed jobs out of sight, among the latest of all; None when there is none."""
    for each in _rows().annotate(clock=Now())[:_LOOKED]:
        if each.done and (each.target_kind, each.verb) in _CLEARING:
            return _line(each, each.clock)
    return None


def sentence(action: Any) -> str:
    """Who did what, why, and what came of it: "ana: retry of 3 jobs: done 2, skipped 1 (stripe is back)"."""
    shown = ", ".join(str(each) for each in action.target_ids[:3])
    kind = action.get_target_kind_display()
    what = f"{kind} {shown}" if action.target_count <= 3 else f"{action.target_count:,} × {kind}"
    told = result(action)
    reason = f": {action.reason}" if action.reason else ""
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


def _line(action: Any, clock: datetime) -> dict[str, Any]:
    return {"at": moment(action.at, clock), "sentence": sentence(action)}
