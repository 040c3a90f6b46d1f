"""The page of a job that retention has moved to the archive: the same facts, and no buttons."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from pgjobs.admin.ages import in_words
from pgjobs.admin.detail import _SECTIONS, JobDetail
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.queue.models import ArchivedJob

_LEFT_OUT = {"lease_owner", "lease", "lease_expires_at", "heartbeat", "progress_text"}
_ARCHIVED_SECTIONS: list[tuple[str | None, tuple[str, ...]]] = [
    (title, tuple(name for name in names if name not in _LEFT_OUT))
    for title, names in _SECTIONS
    if title != "Lease"
]


@admin.register(ArchivedJob)
class ArchivedJobAdmin(ReadOnlyAdmin):
    """Reached by id, from the list and the page of jobs; the archive has no list of its own."""

    view_permission = "pgjobs.view_job"
    fieldsets: ClassVar[Any] = (
        *((title, {"fields": names}) for title, names in _ARCHIVED_SECTIONS),
        ("Archive", {"fields": ("archived_at",)}),
    )
    readonly_fields = (*(name for _, names in _ARCHIVED_SECTIONS for name in names), "archived_at")
    payload_text = JobDetail.payload_text
    result_text = JobDetail.result_text
    last_error_text = JobDetail.last_error_text
    error_history = JobDetail.error_history

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Not in the index of the site."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list of jobs, from which a search by id leads here."""
        return HttpResponseRedirect(reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name))

    def url_of(self, pk: Any) -> str:
        """The page of one archived job."""
        return reverse("admin:pgjobs_archivedjob_change", args=[pk], current_app=self.admin_site.name)

    @admin.display(description="when")
    def when(self, job: Any) -> str:
        """Since when it is in its status."""
        return f"{in_words(job.clock - job.completed_at)} ago"
