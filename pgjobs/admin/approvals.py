"""The inbox of approvals: what workflows ask people, in the words of the decider, and the form that decides."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.views.main import ChangeList
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgjobs.admin import approval, marks
from pgjobs.admin.ages import in_words, moment
from pgjobs.admin.frames import RowPage
from pgjobs.admin.guards import guarded
from pgjobs.admin.limits import PANEL_SECONDS, acting, limited, panel
from pgjobs.admin.pages import changed
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.admin.verbs import denied, stated, valid
from pgjobs.admin.window import LARGEST_ID
from pgjobs.conf import get_settings
from pgjobs.workflows.approvals import DEFAULT_PERMISSION, decide, may_decide, pending_for, reason_missing
from pgjobs.workflows.deciders import doubt
from pgjobs.workflows.models import Wait
from pgjobs.workflows.states import WaitKind

_SECONDS = 10


class DecisionForm(forms.Form):
    """One person's decision on what they were shown."""

    decision = forms.ChoiceField(choices=[("approve", "Approve"), ("reject", "Reject")])
    reason = forms.CharField(max_length=2_000, required=False)

    def clean(self) -> dict[str, Any]:
        """With what a decision by hand must have."""
        given: dict[str, Any] = super().clean() or {}
        missing = reason_missing(given.get("decision") != "reject", given.get("reason", ""))
        if missing and "reason" not in self.errors:
            self.add_error("reason", missing)
        return given


class ApprovalAdmin(RowPage, ReadOnlyAdmin):
    """Open approvals, the one that is due first at the top; for viewers of waits all of them, else one's own."""

    view_permission = "pgjobs.view_wait"
    row_template, row_seconds, row_shared = "pgjobs/admin/approval.html", _SECONDS, False
    row_word = "Approval"
    large_columns = ("context", "resolution", "rule", "votes")
    list_display = ("due", "name", "workflow", "execution", "waiting_for", "otherwise", "quorum")
    list_display_links = ("name",)
    list_select_related = ("execution",)
    ordering = (F("wake_at").asc(nulls_last=True), "created_at", "pk")

    def get_urls(self) -> list[Any]:
        """The address of decisions, beside Django's own."""
        view = guarded(self)(self.decide_view)
        return [path("<int:object_id>/decide/", view, name="pgjobs_wait_decide"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Approvals only; decided ones are for viewers of waits."""
        if request.user.has_perm(self.view_permission):
            approvals: QuerySet[Any] = super().get_queryset(request).filter(kind=WaitKind.APPROVAL.value)
            return approvals.select_related("execution")
        return pending_for(request.user).annotate(clock=Now())

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; viewers may look at what was decided too."""
        tabs = []
        if request.user.has_perm(self.view_permission):
            decided = request.GET.get("decided") == "1"
            tabs = [
                {"label": "Waiting", "url": "?", "current": not decided},
                {"label": "Decided", "url": "?decided=1", "current": decided},
            ]
        return super().changelist_view(request, {"tabs": tabs, **(extra_context or {})})

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Open ones, or those that were decided, the latest of these first."""
        narrowed: QuerySet[Any] = super().narrow(changelist, rows)
        request: Any = changelist.request  # type: ignore[attr-defined]
        if request.GET.get("decided") == "1" and request.user.has_perm(self.view_permission):
            return narrowed.filter(resolved_at__isnull=False).order_by("-pk")
        return narrowed.filter(resolved_at__isnull=True)

    def url_of(self, pk: Any) -> str:
        """The page of one approval."""
        return reverse("admin:pgjobs_wait_change", args=[pk], current_app=self.admin_site.name)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Viewers of waits, and whoever is asked something."""
        if super().has_view_permission(request, obj):
            return True
        return bool(
            panel(lambda: pending_for(request.user).exists()).value
        )  # asked by every page of the site

    def page(self, request: HttpRequest, row: Any) -> HttpResponse:
        """What is asked, with the form for those who have a say."""
        return self.framed(request, row.name or f"Approval {row.pk}", lambda: self._content(request, row))

    def _content(self, request: HttpRequest, wait: Any) -> dict[str, Any]:
        may, why_not = may_decide(request.user, wait)
        return {
            **approval.content(wait, self.admin_site, request.user),
            "interval": 0 if wait.resolved_at else _SECONDS,
            "open": wait.resolved_at is None,
            "may": may,
            "why_not": why_not,
            "doubt": "" if wait.resolved_at else _doubt(wait),
            "shown_hash": wait.context_hash,
            "decide_url": reverse(
                "admin:pgjobs_wait_decide", args=[wait.pk], current_app=self.admin_site.name
            ),
        }

    def decide_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """Take a decision. POST only; who may decide is asked by the function that decides."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        # Found whoever asks: somebody else may have decided since this person's page was made, and they are to be told.
        with limited(PANEL_SECONDS):
            wait: Any = _approvals().filter(pk=min(object_id, LARGEST_ID)).first()
        if wait is None:
            return self.missing_page(request, str(object_id))
        if not may_decide(request.user, wait)[0] and not approval.has_voted(request.user, wait):
            needed = wait.permission or DEFAULT_PERMISSION
            return denied(request, "decide", needed, kind="approval", ids=[wait.pk])
        form = DecisionForm(request.POST)
        if not valid(request, form, "Nothing was decided"):
            return self._back(request, wait.pk)
        given, shown_hash = form.cleaned_data, stated(request, "shown_hash", f"approval {wait.pk}")
        with acting():
            decision = decide(
                wait.pk,
                approved=given["decision"] == "approve",
                actor=request.user,
                reason=given["reason"],
                shown_hash=shown_hash,
                via="admin",
            )
            if decision.done:
                _log(request, wait, decision.message)
        changed()
        if not decision.done:
            messages.warning(request, f"Nothing was decided: {decision.message}.")
            return self._back(request, wait.pk)
        messages.success(request, f"{wait.name}: {decision.message}.")
        return self._back(request)

    def _back(self, request: HttpRequest, pk: int | None = None) -> HttpResponseRedirect:
        """To the approval, else to the list, else to where everybody may be: the last decision shuts both."""
        site = self.admin_site.name
        if not self.has_view_permission(request):
            return HttpResponseRedirect(reverse("admin:index", current_app=site))
        if pk is not None and panel(lambda: self.get_queryset(request).filter(pk=pk).exists()).value:
            return HttpResponseRedirect(self.url_of(pk))
        return HttpResponseRedirect(reverse("admin:pgjobs_wait_changelist", current_app=site))

    @admin.display(description="due")
    def due(self, wait: Any) -> SafeString | str:
        """When the time to decide is over."""
        if wait.resolved_at:
            state = "approved" if wait.approved else "rejected"
            by = f" by {wait.decided_by}" if wait.decided_by else ", nobody decided"
            return format_html("{}{} {}", state, by, moment(wait.resolved_at, wait.clock))
        if wait.wake_at is None:
            return "no deadline"
        if wait.wake_at <= wait.clock:
            return marks.state("overdue", "the time is over")
        return moment(wait.wake_at, wait.clock)

    @admin.display(description="workflow")
    def workflow(self, wait: Any) -> str:
        """What asks."""
        return str(wait.execution.workflow_name)

    @admin.display(description="waiting for")
    def waiting_for(self, wait: Any) -> str:
        """Since it was asked."""
        return in_words((wait.resolved_at or wait.clock) - wait.created_at)

    @admin.display(description="if nobody decides")
    def otherwise(self, wait: Any) -> str:
        """What undecided comes to."""
        return str(wait.get_on_timeout_display()) if wait.wake_at else "it waits on"


def _doubt(wait: Any) -> str:
    """Why nobody may ever decide it; empty also where that cannot be read."""
    found = panel(lambda: doubt(wait.permission, wait.groups, wait.users)).value
    return str(found) if found else ""


def _approvals() -> QuerySet[Wait]:
    found = Wait._base_manager.using(get_settings().database).select_related("execution")
    return found.filter(kind=WaitKind.APPROVAL.value)


def _log(request: HttpRequest, wait: Wait, message: str) -> None:
    user: Any = request.user
    same: Any = _approvals().filter(pk=wait.pk)
    LogEntry.objects.log_actions(
        user_id=user.pk, queryset=same, action_flag=CHANGE, change_message=message.capitalize()
    )
