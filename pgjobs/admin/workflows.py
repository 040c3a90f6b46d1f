"""Executions of workflows: which are under way and what each waits for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgjobs.admin import firstlines, flowverbs, marks, window
from pgjobs.admin.ages import in_words, moment
from pgjobs.admin.filters import NamedFilter, StatusFilter
from pgjobs.admin.readonly import BoundedChangeList, ReadOnlyAdmin
from pgjobs.admin.verbs import expected, ticked
from pgjobs.admin.workflow import WorkflowPage
from pgjobs.workflows.models import Execution, Wait
from pgjobs.workflows.registry import workflows
from pgjobs.workflows.states import TERMINAL, ExecutionStatus

# `enqueued` is spelled as the two halves that the partial indexes cover.
_ENQUEUED = Q(status=ExecutionStatus.ENQUEUED.value) & (Q(crash_count=0) | Q(crash_count__gt=0))
_WITHOUT_INDEX = {None, *(status.value for status in TERMINAL)}
_TABS = (
    ("Running", "running"),
    ("Enqueued", "enqueued"),
    ("Waiting", "waiting"),
    ("Paused", "paused"),
    ("Failed", "failed"),
    ("Done", "succeeded"),
    ("Cancelled", "cancelled"),
    ("All", ""),
)


class ExecutionStatusFilter(StatusFilter):
    """By status."""

    def names(self) -> Iterable[str]:
        """All statuses."""
        return ExecutionStatus.values

    def condition(self, value: str) -> Q:
        """Spelled so that the partial indexes serve it."""
        return _ENQUEUED if value == ExecutionStatus.ENQUEUED.value else Q(status=value)


class WorkflowFilter(NamedFilter):
    """By workflow."""

    title = "workflow"
    parameter_name = "workflow_name"

    def names(self) -> Iterable[str]:
        """Workflows that this process knows."""
        return workflows.names()


class ExecutionAdmin(WorkflowPage, ReadOnlyAdmin):
    """All executions in the live tables, the newest first."""

    view_permission = "pgjobs.view_execution"
    target_kind = flowverbs.KIND
    large_columns = ("input", "output", "errors", "last_error")
    actions = ("resume_selected", "retry_selected", "cancel_selected")
    list_display = ("id", "workflow_name", "key", "state", "step", "age", "attempt_count", "why")
    list_filter = (ExecutionStatusFilter, WorkflowFilter)
    search_fields = ("id",)
    search_help_text = "An exact id, or the key of an execution among the newest."

    def url_of(self, pk: Any) -> str:
        """The page of one execution."""
        return reverse("admin:pgjobs_execution_change", args=[pk], current_app=self.admin_site.name)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list with its tabs."""
        kept = {name: value for name, value in request.GET.items() if name == "workflow_name"}
        here = request.GET.get("status", "")
        tabs = [
            {
                "label": label,
                "url": f"?{urlencode({'status': status, **kept} if status else kept)}",
                "current": status == here,
            }
            for label, status in _TABS
        ]
        return super().changelist_view(request, {"tabs": tabs, **(extra_context or {})})

    def matching(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """By id or key."""
        pk = window.as_id(term)
        return rows.filter(Q(pk=pk) | Q(key=term) if pk else Q(key=term))

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Without large columns; filters that no partial index serves look through the newest ids, and say so."""
        open_step = Wait._base_manager.filter(execution=OuterRef("pk"), resolved_at__isnull=True).order_by(
            "pk"
        )
        rows = super().narrow(changelist, rows)
        rows = rows.annotate(
            **firstlines.columns("input"), open_step=Subquery(open_step.values("step_id")[:1])
        )
        specs: list[Any] = changelist.filter_specs
        chosen = {spec.parameter_name: spec.value() for spec in specs if spec.value() is not None}
        assert isinstance(changelist, BoundedChangeList)
        params = changelist.request.GET
        asked = bool(chosen) or window.PARAMETER in params or bool(changelist.query)
        if not asked or chosen.get("status") not in _WITHOUT_INDEX:
            return rows
        stretch = window.window(Execution, params.get(window.PARAMETER, ""))
        term = changelist.query.strip()
        if not stretch.is_partial or window.as_id(term):
            return rows
        changelist.notice = stretch.sentence("executions", dict(params.lists()))
        return rows.filter(**stretch.condition())

    def has_resume_permission(self, request: HttpRequest) -> bool:
        """Whether the user may resume and retry. Django asks this for the actions."""
        return flowverbs.may(self, request, "resume")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel. Django asks this for the action."""
        return flowverbs.may(self, request, "cancel")

    @admin.action(description="Resume selected executions", permissions=["resume"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, "resume")

    @admin.action(description="Retry selected executions", permissions=["resume"])
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, "retry")

    @admin.action(description="Cancel selected executions", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, "cancel")

    def _on_ticked(self, request: HttpRequest, verb: str) -> None:
        if request.POST.get("select_across") == "1":
            messages.error(
                request, "Nothing was done: an action works on ticked executions, not on a whole list."
            )
        else:
            flowverbs.act(request, flowverbs.VERBS[verb], ticked(request))

    def action_checkbox(self, obj: Any) -> SafeString:
        """With what the person sees of the row, so that an action leaves alone what has moved on since."""
        box = super().action_checkbox(obj)
        return format_html('{}<input type="hidden" name="seen" value="{}:{}">', box, obj.pk, expected(obj))

    action_checkbox.__dict__.update(vars(admin.ModelAdmin.action_checkbox))

    @admin.display(description="status")
    def state(self, execution: Any) -> SafeString:
        """As text, with a class for its colour."""
        return marks.state(execution.status)

    @admin.display(description="waits at")
    def step(self, execution: Any) -> str:
        """The oldest call that is still waited for."""
        return execution.open_step or "-"

    @admin.display(description="age")
    def age(self, execution: Any) -> SafeString | str:
        """Since the start."""
        if execution.completed_at:
            took = in_words(execution.completed_at - execution.created_at)
            return format_html("{}, took {}", moment(execution.created_at, execution.clock), took)
        return moment(execution.created_at, execution.clock)

    @admin.display(description="why")
    def why(self, execution: Any) -> str:
        """Why it is paused or failed, else the latest verb."""
        texts = (execution.pause_reason, execution.error_start, execution.note)
        return firstlines.of(execution, *texts, workflow=execution.workflow_name)
