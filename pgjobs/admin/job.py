"""The page of one job: where it stands, why, attempt by attempt, what it was given, and the verbs that fit."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from pgjobs import redaction
from pgjobs.admin import audited, bulkplan, jobfacts, jobverbs, newer, retry, whypanel
from pgjobs.admin.frames import RowPage
from pgjobs.admin.guards import guarded
from pgjobs.admin.limits import PANEL_SECONDS, acting, limited, panel
from pgjobs.admin.verbs import actor_of, denied, expected, lacking
from pgjobs.admin.window import LARGEST_ID, as_id
from pgjobs.queue import audit, rights
from pgjobs.queue.archive import find_archived

if TYPE_CHECKING:
    from pgjobs.admin.joblist import JobListAdmin as Base
else:
    Base = object

_SECONDS = 5
_REVEAL = rights.right("job", "reveal").permission


class JobPage(RowPage, Base):
    """Mixed into the admin of jobs."""

    row_template, row_seconds, row_word = "pgjobs/admin/job.html", _SECONDS, "Job"

    def get_urls(self) -> list[Any]:
        """The page's own addresses, beside Django's."""
        wrap = guarded(self)
        own = [
            path("<int:object_id>/payload.json", wrap(self.download_view), name="pgjobs_job_payload"),
            path("<int:object_id>/reveal/", wrap(self.reveal_view), name="pgjobs_job_reveal"),
        ]
        return [
            *own,
            *bulkplan.urls(self),
            *retry.urls(self),
            *newer.urls(self),
            *jobverbs.urls(self),
            *super().get_urls(),
        ]

    def page_at(self, request: HttpRequest, name: str) -> HttpResponse:
        """The page, that of the archived job, or a 404 that says why there is none."""
        job: Any = self.get_object(request, name)
        if job is None:
            return self.archived_page(name) or self.missing_page(request, name)
        return self.page(request, job)

    def page(self, request: HttpRequest, row: Any, *, revealed: bool = False) -> HttpResponse:
        """The page of a job that was found."""
        return self.framed(
            request, f"Job {row.pk}: {row.job_type}", lambda: self.content(request, row, revealed=revealed)
        )

    def content(self, request: HttpRequest, job: Any, *, revealed: bool) -> dict[str, Any]:
        """What the page shows."""
        head, site = jobfacts.header(job), self.admin_site
        may_reveal = request.user.has_perm(_REVEAL)
        return {
            "interval": 0 if head["terminal"] or revealed else _SECONDS,
            "head": head,
            "job_id": str(job.pk),
            "facts": jobfacts.facts(job),
            "lease": jobfacts.lease(job),
            "buttons": jobverbs.buttons(self, request, job),
            "expected": expected(job),
            "options_url": reverse("admin:pgjobs_job_options", args=[job.pk], current_app=site.name)
            if jobverbs.may(self, request, "retry") and not jobverbs.VERBS["retry"].why_not(job)
            else "",
            "why": whypanel.of(job.pk, site) if head["pending"] else None,
            "timeline": jobfacts.timeline(job),
            "relations": panel(lambda: jobfacts.relations(job, site)),
            "download_url": reverse("admin:pgjobs_job_payload", args=[job.pk], current_app=site.name),
            "reveal_url": reverse("admin:pgjobs_job_reveal", args=[job.pk], current_app=site.name)
            if may_reveal
            else "",
            "audit": audited.panel_of("job", job.pk, job.clock, partial(jobfacts.text, job)),
            "errors_url": reverse("admin:pgjobs_errorgroup_changelist", current_app=site.name),
            **jobfacts.values(job, revealed=revealed),
        }

    def archived_page(self, pk: str) -> HttpResponseRedirect | None:
        """To the page of the archived job of that id."""
        number = as_id(pk)
        if number is None:
            return None
        with limited(PANEL_SECONDS):
            archived = find_archived(number)
        if archived is None:
            return None
        site = self.admin_site.name
        return HttpResponseRedirect(
            reverse("admin:pgjobs_archivedjob_change", args=[number], current_app=site)
        )

    def download_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """The whole payload as a file, without its secrets."""
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        job: Any = self.get_object(request, str(object_id)) if object_id <= LARGEST_ID else None
        if job is None:
            return self.missing_page(request, str(object_id))
        shown = redaction.redacted(job.payload, job_type=job.job_type)
        answer = HttpResponse(
            json.dumps(shown, indent=2, ensure_ascii=False), content_type="application/json"
        )
        answer["Content-Disposition"] = f'attachment; filename="job-{job.pk}-payload.json"'
        return answer

    def reveal_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """The page with its secrets, for who may see them. POST only, and recorded."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if permission := lacking(self, request, _REVEAL):
            return denied(request, "reveal", permission, kind="job", ids=[object_id])
        job: Any = self.get_object(request, str(object_id)) if object_id <= LARGEST_ID else None
        if job is None:
            return self.missing_page(request, str(object_id))
        with acting():
            audit.record("reveal", target_kind="job", target_ids=[job.pk], actor=actor_of(request), done=1)
        return self.page(request, job, revealed=True)
