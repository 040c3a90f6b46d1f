"""What the lists of jobs share: columns, actions, and the page a row leads to."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgjobs.admin import firstlines, jobverbs, marks
from pgjobs.admin.ages import in_words, lease_in_words, moment
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.admin.verbs import ticked
from pgjobs.queue.states import JobStatus


class JobListAdmin(ReadOnlyAdmin):
    """A list over the job table."""

    view_permission = "pgjobs.view_job"
    target_kind = jobverbs.KIND
    large_columns = ("payload", "result", "errors", "last_error")

    def url_of(self, pk: Any) -> str:
        """One page per job, whichever list leads to it."""
        return reverse("admin:pgjobs_job_change", args=[pk], current_app=self.admin_site.name)

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Without large columns, but with the beginning of the last error."""
        narrowed: QuerySet[Any] = super().narrow(changelist, rows).annotate(**firstlines.columns("payload"))
        return narrowed

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whether the user may retry jobs. Django asks this for the action."""
        return jobverbs.may(self, request, "retry")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel jobs. Django asks this for the action."""
        return jobverbs.may(self, request, "cancel")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        """Whether the user may discard jobs. Django asks this for the action."""
        return jobverbs.may(self, request, "discard")

    def has_reschedule_permission(self, request: HttpRequest) -> bool:
        """Whether the user may make jobs due. Django asks this for the action."""
        return jobverbs.may(self, request, "run_now")

    @admin.action(description="Retry selected jobs", permissions=["retry"])
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, "retry")

    @admin.action(description="Cancel selected jobs", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, "cancel")

    @admin.action(description="Run selected jobs now", permissions=["reschedule"])
    def run_now_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, "run_now")

    @admin.action(description="Discard selected jobs", permissions=["discard"])
    def discard_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, "discard")

    @admin.action(description="Restore selected jobs", permissions=["discard"])
    def restore_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, "restore")

    def _on_ticked(self, request: HttpRequest, name: str) -> None:
        if request.POST.get("select_across") == "1":
            messages.error(request, "Nothing was done: an action works on ticked jobs, not on a whole list.")
        else:
            jobverbs.act(request, jobverbs.VERBS[name], ticked(request))

    def action_checkbox(self, obj: Any) -> SafeString:
        """With what the person sees of the row, so that an action leaves alone what has moved on since."""
        box = super().action_checkbox(obj)
        seen = f"{obj.pk}:{obj.status}:{obj.attempt_count}"
        return format_html('{}<input type="hidden" name="seen" value="{}">', box, seen)

    action_checkbox.__dict__.update(vars(admin.ModelAdmin.action_checkbox))

    @admin.display(description="status")
    def state(self, job: Any) -> SafeString:
        """As text, with a class for its colour."""
        return marks.state(job.status)

    @admin.display(description="attempts")
    def attempts(self, job: Any) -> str:
        """Claims, those that ended in a crash counted apart."""
        crashes = f", {job.crash_count} crashed" if job.crash_count else ""
        return f"{job.attempt_count} of {job.max_attempts}{crashes}"

    @admin.display(description="when")
    def when(self, job: Any) -> SafeString | str:
        """Since when, or until when, the job is in its status."""
        if job.status == JobStatus.PENDING:
            due = (job.clock - job.available_at).total_seconds() >= 0
            return format_html("{} {}", "due" if due else "runs", moment(job.available_at, job.clock))
        if job.status == JobStatus.RUNNING:
            return f"running {self.running_for(job)}"
        return moment(job.completed_at, job.clock)

    @admin.display(description="error")
    def error(self, job: Any) -> str:
        """The beginning of the last error, else of the note."""
        return firstlines.of(job, job.error_start, job.note, job_type=job.job_type)

    @admin.display(description="lease")
    def lease(self, job: Any) -> str:
        """What is left of it."""
        return lease_in_words(job.lease_expires_at - job.clock if job.lease_expires_at else None)

    @admin.display(description="heartbeat")
    def heartbeat(self, job: Any) -> str:
        """Age of the last renewal."""
        return f"{in_words(job.clock - job.heartbeat_at)} ago" if job.heartbeat_at else "-"

    @admin.display(description="for")
    def running_for(self, job: Any) -> str:
        """Time since the claim."""
        return in_words(job.clock - job.started_at if job.started_at else None)


class LedToJobAdmin(JobListAdmin):
    """A list of its own over the job table; its rows have their page among the jobs."""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The job's own page, which asks for the permission."""
        return HttpResponseRedirect(self.url_of(object_id))
