"""Jobs, as three lists: all of them, the running, and the dead."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from pgjobs.admin.ages import in_words, lease_in_words
from pgjobs.admin.detail import LARGEST_ID, JobDetail
from pgjobs.admin.filters import (
    WINDOW,
    EndedStatusFilter,
    JobTypeFilter,
    QueueFilter,
    StatusFilter,
    window_floor,
)
from pgjobs.admin.readonly import BoundedChangeList, ReadOnlyAdmin
from pgjobs.admin.verbs import CANCEL, RETRY, Verb, perform, ticked
from pgjobs.conf import get_settings
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.proxies import DeadJob, RunningJob
from pgjobs.queue.states import JobStatus
from pgjobs.queue.stats import COUNT_LIMIT

_WITHOUT_INDEX = {None, JobStatus.SUCCEEDED.value}
_ENDED_BADLY = (JobStatus.DEAD.value, JobStatus.FAILED.value)


class JobListAdmin(ReadOnlyAdmin):
    """What the lists of jobs share: columns, actions, and the page a row leads to."""

    view_permission = "pgjobs.view_job"
    large_columns = ("payload", "result", "errors", "last_error")

    def url_of(self, pk: Any) -> str:
        """One page per job, whichever list leads to it."""
        return reverse("admin:pgjobs_job_change", args=[pk], current_app=self.admin_site.name)

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Without large columns, but with the beginning of the last error."""
        narrowed: QuerySet[Any] = (
            super().narrow(changelist, rows).annotate(error_start=Left("last_error", 160))
        )
        return narrowed

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whether the user may retry jobs. Django asks this for the action."""
        return self.may(request, RETRY)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel jobs. Django asks this for the action."""
        return self.may(request, CANCEL)

    def may(self, request: HttpRequest, verb: Verb) -> bool:
        """Whoever may not look may not act either."""
        return self.has_view_permission(request) and request.user.has_perm(verb.permission)

    @admin.action(description="Retry selected jobs", permissions=["retry"])
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, RETRY)

    @admin.action(description="Cancel selected jobs", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """The verb on the ticked rows."""
        self._on_ticked(request, CANCEL)

    def _on_ticked(self, request: HttpRequest, verb: Verb) -> None:
        if request.POST.get("select_across") == "1":
            messages.error(request, "Nothing was done: an action works on ticked jobs, not on a whole list.")
        else:
            perform(request, verb, ticked(request))

    @admin.display(description="attempts")
    def attempts(self, job: Any) -> str:
        """Claims, those that ended in a crash counted apart."""
        crashes = f", {job.crash_count} crashed" if job.crash_count else ""
        return f"{job.attempt_count} of {job.max_attempts}{crashes}"

    @admin.display(description="when")
    def when(self, job: Any) -> str:
        """Since when, or until when, the job is in its status."""
        if job.status == JobStatus.PENDING:
            wait = job.clock - job.available_at
            return f"waiting {in_words(wait)}" if wait.total_seconds() >= 0 else f"due in {in_words(wait)}"
        if job.status == JobStatus.RUNNING:
            return f"running {self.running_for(job)}"
        return f"{in_words(job.clock - job.completed_at)} ago" if job.completed_at else "-"

    @admin.display(description="error")
    def error(self, job: Any) -> str:
        """The first line of the last error, else the note."""
        lines = (job.error_start or job.note).splitlines()
        return lines[0][:160] if lines else "-"

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

    @admin.display(description="progress")
    def progress_text(self, job: Any) -> str:
        """As the handler reported it."""
        if not isinstance(job.progress, dict):
            return "-"
        total = job.progress.get("total")
        done = f"{job.progress.get('done')}" + (f" of {total}" if total is not None else "")
        return f"{done} {job.progress.get('note') or ''}".strip()


@admin.register(Job)
class JobAdmin(JobDetail, JobListAdmin):
    """All jobs, the newest first."""

    actions = ("retry_selected", "cancel_selected")
    list_display = ("id", "job_type", "queue", "status", "when", "attempts", "error")
    list_filter = (StatusFilter, QueueFilter, JobTypeFilter)
    search_fields = ("id",)
    search_help_text = (
        f"An exact id, idempotency key or job type; keys and types among the newest {WINDOW:,} ids."
    )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; or the page of an archived job, when its id is searched for."""
        term = request.GET.get("q", "").strip()
        if request.method == "GET" and term and self.has_view_permission(request):
            archived = self.archived_page(term)  # an id is in one table only
            if archived is not None:
                return archived
        return super().changelist_view(request, extra_context)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact matches only; a substring search reads every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        using = get_settings().database
        newest = Job._base_manager.using(using).filter(pk__gt=window_floor(using))
        ids = set(newest.filter(idempotency_key=term).order_by("-pk").values_list("pk", flat=True)[:100])
        ids |= set(JobResult._base_manager.using(using).filter(pk=term).values_list("job_id", flat=True))
        if term.isdecimal() and int(term) <= LARGEST_ID:
            ids.add(int(term))
        if ids:
            return queryset.filter(pk__in=ids), False
        return queryset.filter(pk__gt=window_floor(using), job_type=term), False

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Filters that no partial index serves look through the newest ids only, and say so."""
        rows = super().narrow(changelist, rows)
        specs: list[Any] = changelist.filter_specs
        chosen = {spec.parameter_name: spec.value() for spec in specs if spec.value() is not None}
        if not chosen or changelist.query or chosen.get("status") not in _WITHOUT_INDEX:
            return rows
        floor = window_floor(get_settings().database)
        if floor <= 0:
            return rows
        assert isinstance(changelist, BoundedChangeList)
        changelist.notice = f"Looked through the newest {WINDOW:,} jobs only: ids above {floor:,}."
        return rows.filter(pk__gt=floor)


class LedToJobAdmin(JobListAdmin):
    """A list of its own over the job table; its rows have their page among the jobs."""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The job's own page, which asks for the permission."""
        return HttpResponseRedirect(self.url_of(object_id))


@admin.register(RunningJob)
class RunningJobAdmin(LedToJobAdmin):
    """What is being worked on, the lease that ends first (or is overdue the longest) at the top."""

    actions = ("cancel_selected",)
    list_display = (
        "id",
        "job_type",
        "queue",
        "lease",
        "heartbeat",
        "running_for",
        "progress_text",
        "attempts",
        "lease_owner",
    )
    list_filter = (QueueFilter, JobTypeFilter)
    ordering = ("lease_expires_at", "-pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """As many rows as the workers have slots."""
        return super().get_queryset(request).filter(status=JobStatus.RUNNING.value)


@admin.register(DeadJob)
class DeadJobAdmin(LedToJobAdmin):
    """What ended without success, the latest first."""

    actions = ("retry_selected",)
    list_display = ("id", "job_type", "queue", "status", "when", "attempts", "error")
    list_filter = (EndedStatusFilter, QueueFilter, JobTypeFilter)
    ordering = ("-completed_at", "-pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The newest of each status, read from the end of its index whatever the statistics say."""
        dead, failed = (_ended(status)[: COUNT_LIMIT + 1] for status in _ENDED_BADLY)
        return super().get_queryset(request).filter(pk__in=dead.union(failed, all=True))

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """A filter does not see the older ones, and says so."""
        specs: list[Any] = changelist.filter_specs
        chosen = [spec for spec in specs if spec.value() is not None]
        if chosen and any(_ended(status)[COUNT_LIMIT:].exists() for status in _ENDED_BADLY):
            assert isinstance(changelist, BoundedChangeList)
            changelist.notice = (
                f"Looked through the newest {COUNT_LIMIT:,} of each status; "
                f"the list of all jobs, filtered by status, holds the older ones too."
            )
        return super().narrow(changelist, rows)


def _ended(status: str) -> QuerySet[Any]:
    """Ids of one status in the order of its index."""
    using = get_settings().database
    return Job._base_manager.using(using).filter(status=status).order_by("-completed_at").values("pk")
