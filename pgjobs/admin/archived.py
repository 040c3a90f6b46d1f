"""The page of a job that retention has moved to the archive: the same facts, and no buttons."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from pgjobs.admin import audited, jobfacts
from pgjobs.admin.pages import respond
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.queue.models import ArchivedJob


@admin.register(ArchivedJob)
class ArchivedJobAdmin(ReadOnlyAdmin):
    """Reached by id, from the list and the page of jobs; the archive has no list of its own."""

    view_permission = "pgjobs.view_job"

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Not in the index of the site."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list of jobs, from which a search by id leads here."""
        return HttpResponseRedirect(reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name))

    def url_of(self, pk: Any) -> str:
        """The page of one archived job."""
        return reverse("admin:pgjobs_archivedjob_change", args=[pk], current_app=self.admin_site.name)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The page, or a 404 that says why there is none."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        pk = unquote(object_id)
        job: Any = self.get_object(request, pk)
        if job is None:
            missing = {"what": "Archived job", "id": pk[:40]}
            return respond(
                self, request, "pgjobs/admin/missing.html", lambda: missing, title="Job not found", status=404
            )
        return respond(
            self,
            request,
            "pgjobs/admin/job.html",
            lambda: _content(job),
            title=f"Archived job {job.pk}: {job.job_type}",
            crumbs=(("Jobs", reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name)),),
        )


def _content(job: Any) -> dict[str, Any]:
    return {
        "head": jobfacts.header(job),
        "job_id": str(job.pk),
        "facts": jobfacts.facts(job),
        "timeline": jobfacts.timeline(job),
        "audit": audited.panel_of("job", job.pk, job.clock),
        **jobfacts.values(job, revealed=False),
    }
