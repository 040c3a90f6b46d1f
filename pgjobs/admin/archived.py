"""The page of a job that retention has moved to the archive: the same facts, and no buttons."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from pgjobs.admin import audited, jobfacts
from pgjobs.admin.frames import RowPage
from pgjobs.admin.readonly import ReadOnlyAdmin


class ArchivedJobAdmin(RowPage, ReadOnlyAdmin):
    """Reached by id, from the list and the page of jobs; the archive has no list of its own."""

    view_permission = "pgjobs.view_job"
    row_template, row_above = "pgjobs/admin/job.html", "job"
    row_word, missing_title = "Archived job", "Job not found"

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Not in the index of the site."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list of jobs, from which a search by id leads here."""
        return HttpResponseRedirect(reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name))

    def url_of(self, pk: Any) -> str:
        """The page of one archived job."""
        return reverse("admin:pgjobs_archivedjob_change", args=[pk], current_app=self.admin_site.name)

    def page(self, request: HttpRequest, row: Any) -> HttpResponse:
        """The page of a job that was found."""
        return self.framed(request, f"Archived job {row.pk}: {row.job_type}", lambda: _content(row))


def _content(job: Any) -> dict[str, Any]:
    return {
        "head": jobfacts.header(job),
        "job_id": str(job.pk),
        "facts": jobfacts.facts(job),
        "timeline": jobfacts.timeline(job),
        "audit": audited.panel_of("job", job.pk, job.clock, partial(jobfacts.text, job)),
        **jobfacts.values(job, revealed=False),
    }
