"""The inbox of approvals: what workflows ask people, and the form that decides."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from pgjobs.admin import values
from pgjobs.admin.ages import in_words
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.conf import get_settings
from pgjobs.workflows.approvals import DEFAULT_PERMISSION, decide, may_decide, pending_for
from pgjobs.workflows.models import Wait
from pgjobs.workflows.states import WaitKind

_FIELDS = (
    "name",
    "execution",
    "step_id",
    "context_text",
    "may_decide_text",
    "quorum",
    "four_eyes",
    "created_at",
    "wake_at",
    "on_timeout",
    "votes_text",
    "approved",
    "decided_by",
    "reason",
    "resolved_at",
)


class DecisionForm(forms.Form):
    """One person's decision on what they were shown."""

    decision = forms.ChoiceField(choices=[("approve", "Approve"), ("reject", "Reject")])
    reason = forms.CharField(max_length=2_000, required=False)
    shown_hash = forms.CharField(max_length=64, required=False)


@admin.register(Wait)
class ApprovalAdmin(ReadOnlyAdmin):
    """Open approvals, the oldest first: all of them for those who may view waits, else what is addressed to one."""

    view_permission = "pgjobs.view_wait"
    large_columns = ("context", "resolution", "rule", "votes")
    change_form_template = "pgjobs/admin/approval.html"
    fields = _FIELDS
    readonly_fields = _FIELDS
    list_display = ("name", "workflow", "execution", "waiting_for", "due", "quorum")
    list_display_links = ("name",)
    list_select_related = ("execution",)
    ordering = ("created_at", "pk")

    def get_urls(self) -> list[Any]:
        """The address of decisions, beside Django's own."""
        view = self.admin_site.admin_view(self.decide_view)
        return [path("<int:object_id>/decide/", view, name="pgjobs_wait_decide"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Approvals only; decided ones are for viewers of waits."""
        if request.user.has_perm(self.view_permission):
            approvals: QuerySet[Any] = super().get_queryset(request).filter(kind=WaitKind.APPROVAL.value)
            return approvals
        return pending_for(request.user).annotate(clock=Now())

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """The list is of open ones."""
        narrowed: QuerySet[Any] = super().narrow(changelist, rows).filter(resolved_at__isnull=True)
        return narrowed

    def url_of(self, pk: Any) -> str:
        """The page of one approval."""
        return reverse("admin:pgjobs_wait_change", args=[pk], current_app=self.admin_site.name)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Viewers of waits, and whoever is asked something."""
        return super().has_view_permission(request, obj) or pending_for(request.user).exists()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """What is asked, with the form for those who have a say."""
        context = dict(extra_context or {})
        if self.has_view_permission(request):
            wait = self._found(request, unquote(object_id))
            may, why_not = may_decide(request.user, wait)
            context |= {
                "title": wait.name,
                "wait": wait,
                "open": wait.resolved_at is None,
                "may": may,
                "why_not": why_not,
                "decide_url": reverse(
                    "admin:pgjobs_wait_decide", args=[wait.pk], current_app=self.admin_site.name
                ),
            }
        return super().change_view(request, object_id, form_url, context)

    def decide_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """Take a decision. POST only; who may decide is asked by the function that decides."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        wait = self._found(request, str(object_id))
        form = DecisionForm(request.POST)
        if not form.is_valid():
            told = "; ".join(f"{name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items())
            messages.error(request, f"Nothing was decided. {told}")
            return HttpResponseRedirect(self.url_of(object_id))
        given = form.cleaned_data
        using = get_settings().database
        with transaction.atomic(using=using):
            decision = decide(
                wait.pk,
                approved=given["decision"] == "approve",
                actor=request.user,
                reason=given["reason"],
                shown_hash=given["shown_hash"],
            )
            if decision.done:
                _log(request, wait, decision.message)
        if not decision.done:
            messages.warning(request, f"Nothing was decided: {decision.message}.")
            return HttpResponseRedirect(self.url_of(object_id))
        messages.success(request, f"{wait.name}: {decision.message}.")
        return HttpResponseRedirect(reverse("admin:pgjobs_wait_changelist", current_app=self.admin_site.name))

    def _found(self, request: HttpRequest, object_id: str) -> Wait:
        wait: Any = self.get_object(request, object_id)
        if wait is None:
            raise Http404(f"Approval {object_id} is not there, has been decided, or is not yours to decide.")
        found: Wait = wait
        return found

    @admin.display(description="workflow")
    def workflow(self, wait: Any) -> str:
        """What asks."""
        return str(wait.execution.workflow_name)

    @admin.display(description="waiting for")
    def waiting_for(self, wait: Any) -> str:
        """Since it was asked."""
        return in_words(wait.clock - wait.created_at)

    @admin.display(description="due")
    def due(self, wait: Any) -> str:
        """How long there is to decide, and what undecided comes to."""
        if wait.wake_at is None:
            return "no deadline"
        left = wait.wake_at - wait.clock
        passed = left.total_seconds() <= 0
        return "the time is over" if passed else f"in {in_words(left)}, then {wait.get_on_timeout_display()}"

    @admin.display(description="what is asked")
    def context_text(self, wait: Any) -> str:
        """What the decider is shown."""
        return "nothing more" if wait.context is None else values.as_json(wait.context)

    @admin.display(description="who may decide")
    def may_decide_text(self, wait: Any) -> str:
        """Permission, groups and users."""
        named = [f"permission {wait.permission}"] if wait.permission else []
        named += [f"group {group}" for group in wait.groups] + [f"user {user}" for user in wait.users]
        return ", ".join(named) or f"permission {DEFAULT_PERMISSION}"

    @admin.display(description="votes")
    def votes_text(self, wait: Any) -> str:
        """Who decided what so far."""
        return values.as_json(wait.votes) if wait.votes else "none"


def _log(request: HttpRequest, wait: Wait, message: str) -> None:
    user: Any = request.user
    same: Any = Wait._base_manager.using(get_settings().database).filter(pk=wait.pk)
    LogEntry.objects.log_actions(
        user_id=user.pk, queryset=same, action_flag=CHANGE, change_message=message.capitalize()
    )
