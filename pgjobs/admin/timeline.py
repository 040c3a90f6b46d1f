"""What an execution has done and waits for, call by call, on one axis of time. Bounded, whatever the history holds."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast, Left
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgjobs import redaction
from pgjobs.admin import marks
from pgjobs.admin.ages import in_words, moment, seconds_in_words
from pgjobs.admin.pages import trusted
from pgjobs.conf import get_settings
from pgjobs.workflows.models import StepOutput, Wait
from pgjobs.workflows.states import WaitKind

MOST = 200
"""Calls on one page."""

_CHARACTERS = 200
_READ = 2_000  # cut after what is secret in it was looked for
_WIDTH = 300


def of(execution: Any, site: Any, *, first: int = 0, failed_only: bool = False) -> dict[str, Any]:
    """Calls from number ``first`` on, at most :data:`MOST` of them, and where to go for the others."""
    using = get_settings().database
    steps: Any = StepOutput._base_manager.using(using).filter(execution=execution, ordinal__gte=first)
    waits: Any = Wait._base_manager.using(using).filter(execution=execution, ordinal__gte=first)
    if failed_only:
        steps, waits = steps.filter(error__isnull=False), waits.none()
    steps = steps.annotate(told=_start("output"), failed=_start("error")).defer("output", "error")
    waits = waits.annotate(told=_start("resolution")).defer("resolution", "context", "rule")
    found: list[Any] = [
        *steps.order_by("ordinal", "id")[: MOST + 1],
        *waits.order_by("ordinal", "id")[: MOST + 1],
    ]
    found.sort(key=lambda call: (call.ordinal, call.pk))
    shown, more = found[:MOST], found[MOST:]
    axis = _Axis(execution)
    rows = [(_step if isinstance(call, StepOutput) else _wait)(call, axis, site) for call in shown]
    return {
        "rows": rows,
        "from": axis.start_text,
        "until": axis.end_text,
        "next": str(more[0].ordinal) if more else "",
        "first": first,
    }


class _Axis:
    """From the start of an execution to its end, or to now."""

    def __init__(self, execution: Any) -> None:
        self.clock: datetime = execution.clock
        self.workflow: str = execution.workflow_name
        self.input: Any = execution.input
        self.start: datetime = execution.created_at
        self.end = max(execution.completed_at or self.clock, self.start + timedelta(milliseconds=1))
        self.start_text, self.end_text = moment(self.start, self.clock), moment(self.end, self.clock)

    def bar(self, begun: datetime, ended: datetime, kind: str, title: str) -> SafeString:
        """One stretch of it; an open wait is hatched by its class."""
        whole = (self.end - self.start).total_seconds()
        left = max(0.0, min((begun - self.start).total_seconds() / whole, 1.0)) * _WIDTH
        right = max(0.0, min((ended - self.start).total_seconds() / whole, 1.0)) * _WIDTH
        x, wide = min(left, _WIDTH - 2), max(right - left, 2)
        drawn = (
            f'<path class="pgjobs-axis" d="M0 13 H{_WIDTH}" stroke-width="1"/>'
            f'<rect class="{kind}" x="{x:.1f}" y="2" width="{wide:.1f}" height="10"/>'
        )
        return format_html(
            '<svg class="pgjobs-timebar" role="img" width="{w}" height="14" viewBox="0 0 {w} 14">'
            "<title>{title}</title>{drawn}</svg>",
            w=_WIDTH,
            title=title,
            drawn=trusted(drawn),
        )

    def text(self, value: str) -> str:
        """The beginning of a stored text without its secrets, those of the input among them."""
        return redaction.redacted_text(value, payload=self.input, workflow=self.workflow)[:_CHARACTERS]


def _start(column: str) -> Left:
    return Left(Cast(column, TextField()), _READ)


def _step(step: Any, axis: _Axis, site: Any) -> dict[str, Any]:
    took = seconds_in_words(step.seconds)
    begun = step.recorded_at - timedelta(seconds=step.seconds)
    runs = f"{step.attempts} {'attempt' if step.attempts == 1 else 'attempts'}, the last took {took}"
    state = "failed" if step.failed else "recorded"
    kind = "pgjobs-bad" if step.failed else "pgjobs-ok"
    return {
        "call": str(step.ordinal),
        "step": step.step_id,
        "kind": step.get_kind_display(),
        "at": moment(begun, axis.clock),
        "took": took,
        "state": state,
        "mark": marks.state("failed" if step.failed else "succeeded", state),
        "told": axis.text(step.failed or step.told or ""),
        "more": runs,
        "bar": axis.bar(begun, step.recorded_at, kind, f"{step.step_id}: {state}, {runs}"),
        "detail": step.step_id,
    }


def _wait(wait: Any, axis: _Axis, site: Any) -> dict[str, Any]:
    ended = wait.resolved_at or axis.end
    span = in_words((wait.resolved_at or axis.clock) - wait.created_at)
    state = "resolved" if wait.resolved_at else f"open for {span}"
    row = {
        "call": str(wait.ordinal),
        "step": wait.step_id,
        "kind": wait.get_kind_display(),
        "at": moment(wait.created_at, axis.clock),
        "took": span,
        "state": state,
        "mark": marks.state("succeeded" if wait.resolved_at else "waiting", state),
        "told": axis.text(wait.told or wait.name),
        "more": "",
        "bar": axis.bar(wait.created_at, ended, "pgjobs-wait", f"{wait.step_id}: {state}"),
        "detail": "",
    }
    if wait.resolved_at is None and wait.wake_at:
        due = wait.wake_at - axis.clock
        row["more"] = f"due in {in_words(due)}" if due.total_seconds() > 0 else f"overdue by {in_words(due)}"
    return row | _target(wait, axis, site)


def _target(wait: Any, axis: _Axis, site: Any) -> dict[str, Any]:
    """What it waits for, when that has a page."""
    if wait.kind == WaitKind.APPROVAL:
        row: dict[str, Any] = {
            "url": reverse("admin:pgjobs_wait_change", args=[wait.pk], current_app=site.name)
        }
        if wait.decided_by:
            decided = "approved" if wait.approved else "rejected"
            row["state"] = f"{decided} by {wait.decided_by}"
            row["mark"] = marks.state("succeeded" if wait.approved else "failed", row["state"])
            row["told"] = axis.text(wait.reason)
        return row
    model = {WaitKind.JOB.value: "job", WaitKind.CHILD.value: "execution"}.get(wait.kind)
    if model is None or wait.target_id is None:
        return {}
    return {
        "url": reverse(f"admin:pgjobs_{model}_change", args=[wait.target_id], current_app=site.name),
        "more": f"{model} {wait.target_id}",
    }
