"""Executions of workflows: which are under way, what each waits for, call by call, and the verbs that move them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Max, Q, QuerySet
from django.db.models.functions import Left
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from pgjobs.admin import timeline, values
from pgjobs.admin.ages import in_words, lease_in_words
from pgjobs.admin.filters import WINDOW, StatusFilter, _Filter
from pgjobs.admin.readonly import BoundedChangeList, ReadOnlyAdmin
from pgjobs.admin.verbs import ReasonForm, ticked
from pgjobs.conf import get_settings
from pgjobs.queue.control import VerbOutcome
from pgjobs.workflows import control
from pgjobs.workflows.models import Execution
from pgjobs.workflows.registry import workflows
from pgjobs.workflows.states import TERMINAL, ExecutionStatus

# `enqueued` is spelled as the two halves that the partial indexes cover.
_ENQUEUED = Q(status=ExecutionStatus.ENQUEUED.value) & (Q(crash_count=0) | Q(crash_count__gt=0))
_WITHOUT_INDEX = {None, *(status.value for status in TERMINAL)}

_SECTIONS: tuple[tuple[str | None, tuple[str, ...]], ...] = (
    (None, ("status", "workflow_name", "version", "key", "subject", "why_text", "note")),
    ("Lease", ("lease_owner", "lease", "heartbeat_at")),
    ("Budgets", ("attempt_count", "crash_count", "max_crashes")),
    ("Times", ("created_at", "available_at", "started_at", "completed_at", "started_by")),
    ("Related", ("parent", "continued_from")),
    ("Input and output", ("input_text", "output_text")),
    ("Errors", ("error_history",)),
)


@dataclass(frozen=True, slots=True)
class ExecutionVerb:
    """One thing a person may do to executions."""

    name: str
    done: str
    permission: str
    act: Callable[..., list[VerbOutcome]]
    effect: str


VERBS = {
    verb.name: verb
    for verb in (
        ExecutionVerb(
            "resume",
            "resumed",
            "pgjobs.resume_execution",
            control.resume,
            "It goes on from its history, with a fresh crash budget.",
        ),
        ExecutionVerb(
            "retry",
            "retried",
            "pgjobs.resume_execution",
            control.retry,
            "Recorded steps stay; the step whose failure ended it runs again.",
        ),
        ExecutionVerb(
            "cancel",
            "cancelled",
            "pgjobs.cancel_execution",
            control.cancel,
            "It stops for good, with its children and the jobs it awaits that have not begun.",
        ),
    )
}


class ExecutionStatusFilter(StatusFilter):
    """By status."""

    def names(self) -> Iterable[str]:
        """All statuses."""
        return ExecutionStatus.values

    def condition(self, value: str) -> Q:
        """Spelled so that the partial indexes serve it."""
        return _ENQUEUED if value == ExecutionStatus.ENQUEUED.value else Q(status=value)


class WorkflowFilter(_Filter):
    """By workflow."""

    title = "workflow"
    parameter_name = "workflow_name"

    def names(self) -> Iterable[str]:
        """Workflows that this process knows."""
        return workflows.names()


@admin.register(Execution)
class ExecutionAdmin(ReadOnlyAdmin):
    """All executions in the live tables, the newest first."""

    view_permission = "pgjobs.view_execution"
    large_columns = ("input", "output", "errors", "last_error")
    change_form_template = "pgjobs/admin/execution.html"
    actions = ("resume_selected", "retry_selected", "cancel_selected")
    list_display = ("id", "workflow_name", "key", "status", "age", "attempt_count", "why")
    list_filter = (ExecutionStatusFilter, WorkflowFilter)
    fieldsets = tuple((title, {"fields": names}) for title, names in _SECTIONS)
    readonly_fields = tuple(name for _, names in _SECTIONS for name in names)

    def get_urls(self) -> list[Any]:
        """One address per verb, beside Django's own."""
        view = self.admin_site.admin_view(self.verb_view)
        verbs = [
            path(f"<int:object_id>/{name}/", view, {"name": name}, name=f"pgjobs_execution_{name}")
            for name in VERBS
        ]
        return [*verbs, *super().get_urls()]

    def url_of(self, pk: Any) -> str:
        """The page of one execution."""
        return reverse("admin:pgjobs_execution_change", args=[pk], current_app=self.admin_site.name)

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Without large columns; filters that no partial index serves look through the newest ids, and say so."""
        rows = super().narrow(changelist, rows).annotate(error_start=Left("last_error", 160))
        specs: list[Any] = changelist.filter_specs
        chosen = {spec.parameter_name: spec.value() for spec in specs if spec.value() is not None}
        if not chosen or chosen.get("status") not in _WITHOUT_INDEX:
            return rows
        floor = _window_floor()
        if floor <= 0:
            return rows
        assert isinstance(changelist, BoundedChangeList)
        changelist.notice = f"Looked through the newest {WINDOW:,} executions only: ids above {floor:,}."
        return rows.filter(pk__gt=floor)

    def may(self, request: HttpRequest, verb: ExecutionVerb) -> bool:
        """Whoever may not look may not act either."""
        return self.has_view_permission(request) and request.user.has_perm(verb.permission)

    def has_resume_permission(self, request: HttpRequest) -> bool:
        """Whether the user may resume and retry. Django asks this for the actions."""
        return self.may(request, VERBS["resume"])

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel. Django asks this for the action."""
        return self.may(request, VERBS["cancel"])

    @admin.action(description="Resume selected executions", permissions=["resume"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, VERBS["resume"])

    @admin.action(description="Retry selected executions", permissions=["resume"])
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, VERBS["retry"])

    @admin.action(description="Cancel selected executions", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, VERBS["cancel"])

    def _on_ticked(self, request: HttpRequest, verb: ExecutionVerb) -> None:
        if request.POST.get("select_across") == "1":
            messages.error(
                request, "Nothing was done: an action works on ticked executions, not on a whole list."
            )
        else:
            _perform(request, verb, ticked(request), "")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The page, or a 404 that says why there is none."""
        context = dict(extra_context or {})
        if self.has_view_permission(request):
            execution: Any = self.get_object(request, unquote(object_id))
            if execution is None:
                raise Http404(f"Execution {object_id} is not in the live tables; it may have been archived.")
            context |= {
                "buttons": [
                    self._button(verb, execution) for verb in VERBS.values() if self.may(request, verb)
                ],
                "reason": ReasonForm().fields["reason"],
                "timeline": timeline.of(execution),
            }
        return super().change_view(request, object_id, form_url, context)

    def verb_view(self, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
        """Move one execution. POST only; the permission is asked here, not in the template."""
        verb = VERBS[name]
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.may(request, verb):
            raise PermissionDenied
        if not self.get_queryset(request).filter(pk=object_id).exists():
            raise Http404(f"Execution {object_id} is not in the live tables; it may have been archived.")
        form = ReasonForm(request.POST)
        if form.is_valid():
            _perform(request, verb, [object_id], form.cleaned_data["reason"])
        else:
            messages.error(request, f"Nothing was done. Reason: {' '.join(map(str, form.errors['reason']))}")
        return HttpResponseRedirect(self.url_of(object_id))

    def _button(self, verb: ExecutionVerb, execution: Any) -> dict[str, Any]:
        name = f"admin:pgjobs_execution_{verb.name}"
        sources = control.movable(verb.name)
        fits = execution.status in sources
        rule = ", ".join(sorted(source.value for source in sources))
        return {
            "label": verb.name.capitalize(),
            "url": reverse(name, args=[execution.pk], current_app=self.admin_site.name),
            "fits": fits,
            "text": verb.effect
            if fits
            else f"It is {execution.status}; only {rule} ones can be {verb.done}.",
        }

    @admin.display(description="age")
    def age(self, execution: Any) -> str:
        """Since the start."""
        return in_words(execution.clock - execution.created_at)

    @admin.display(description="why")
    def why(self, execution: Any) -> str:
        """Why it is paused or failed, else the latest verb."""
        lines = (execution.pause_reason or execution.error_start or execution.note).splitlines()
        return lines[0][:160] if lines else "-"

    @admin.display(description="why")
    def why_text(self, execution: Any) -> str:
        """The reason of a pause, or the last error, whole."""
        text = execution.pause_reason or execution.last_error
        return values.preformatted(text) if text else "-"

    @admin.display(description="lease")
    def lease(self, execution: Any) -> str:
        """What is left of it."""
        end = execution.lease_expires_at
        return lease_in_words(end - execution.clock if end else None)

    @admin.display(description="input")
    def input_text(self, execution: Any) -> str:
        """The keyword arguments."""
        return values.as_json(execution.input)

    @admin.display(description="output")
    def output_text(self, execution: Any) -> str:
        """What the body returned."""
        return "none" if execution.output is None else values.as_json(execution.output)

    @admin.display(description="ended turns")
    def error_history(self, execution: Any) -> str:
        """All that is kept, with tracebacks."""
        return values.error_history(execution.errors)


def _window_floor() -> int:
    """The newest :data:`WINDOW` ids are above this one."""
    newest = Execution._base_manager.using(get_settings().database).aggregate(newest=Max("pk"))["newest"]
    return int(newest or 0) - WINDOW


def _perform(request: HttpRequest, verb: ExecutionVerb, ids: Iterable[int], reason: str) -> None:
    """Do it, log it for each execution that moved, and say what was skipped and why."""
    using = get_settings().database
    with transaction.atomic(using=using):
        outcomes = verb.act(ids, actor=request.user.get_username(), reason=reason)
        done = [outcome.id for outcome in outcomes if outcome.done]
        moved: Any = Execution._base_manager.using(using).filter(pk__in=done).order_by("pk")
        user: Any = request.user
        LogEntry.objects.log_actions(
            user_id=user.pk,
            queryset=moved.only("pk"),
            action_flag=CHANGE,
            change_message=f"{verb.done.capitalize()}" + (f": {reason}" if reason else "."),
        )
    if done:
        messages.success(
            request, f"{len(done)} {'execution' if len(done) == 1 else 'executions'} {verb.done}."
        )
    refused = [f"{outcome.id} ({outcome.message})" for outcome in outcomes if not outcome.done]
    if refused:
        more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
        messages.warning(request, f"{len(refused)} skipped: {', '.join(refused[:5])}{more}.")
