"""The page of one job: what it was given, what came of it, attempt by attempt, and the buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from pgjobs.admin import values
from pgjobs.admin.verbs import VERBS, ReasonForm, Verb, perform
from pgjobs.queue.archive import find_archived

if TYPE_CHECKING:
    from pgjobs.admin.jobs import JobListAdmin as Base
else:
    Base = object

LARGEST_ID = 2**63 - 1

_SECTIONS: tuple[tuple[str | None, tuple[str, ...]], ...] = (
    (None, ("status", "when", "job_type", "queue", "priority", "progress_text", "note")),
    ("Lease", ("lease_owner", "lease", "lease_expires_at", "heartbeat")),
    ("Budgets", ("attempt_count", "max_attempts", "crash_count", "max_crashes")),
    ("Times", ("created_at", "available_at", "started_at", "completed_at", "completed_by")),
    ("Payload", ("payload_text",)),
    ("Result", ("idempotency_key", "result_text")),
    ("Errors", ("last_error_text", "error_history")),
)


class JobDetail(Base):
    """Mixed into the admin of jobs."""

    change_form_template = "pgjobs/admin/job.html"
    fieldsets = tuple((title, {"fields": names}) for title, names in _SECTIONS)
    readonly_fields = tuple(name for _, names in _SECTIONS for name in names)

    def get_urls(self) -> list[Any]:
        """One address per verb, beside Django's own."""
        view = self.admin_site.admin_view(self.verb_view)
        verbs = [
            path(f"<int:object_id>/{name}/", view, {"name": name}, name=f"pgjobs_job_{name}")
            for name in VERBS
        ]
        return [*verbs, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The page, or a 404 that says why there is none."""
        job: Any = None
        if self.has_view_permission(request):
            job = self.get_object(request, unquote(object_id))
            if job is None:
                if archived := self.archived_page(unquote(object_id)):
                    return archived
                raise Http404(f"Job {object_id} is not in the table; old jobs may have been removed.")
        buttons = [self._button(verb, job) for verb in VERBS.values() if self.may(request, verb)]
        context = {**(extra_context or {}), "buttons": buttons, "reason": ReasonForm().fields["reason"]}
        return super().change_view(request, object_id, form_url, context)

    def archived_page(self, term: str) -> HttpResponse | None:
        """A redirect to the page of the archived job whose id ``term`` is; None when there is none."""
        pk = int(term) if term.isdecimal() and len(term) < 20 else 0
        if not 0 < pk <= LARGEST_ID or find_archived(pk) is None:
            return None
        name = "admin:pgjobs_archivedjob_change"
        return HttpResponseRedirect(reverse(name, args=[pk], current_app=self.admin_site.name))

    def verb_view(self, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
        """Retry or cancel one job. POST only; the permission is asked here, not in the template."""
        verb = VERBS[name]
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.may(request, verb):
            raise PermissionDenied
        if not self.get_queryset(request).filter(pk=object_id).exists():
            if archived := self.archived_page(str(object_id)):
                messages.error(request, f"Nothing was done: an archived job cannot be {verb.done}.")
                return archived
            raise Http404(f"Job {object_id} is not in the table; old jobs may have been removed.")
        form = ReasonForm(request.POST)
        if form.is_valid():
            perform(request, verb, [object_id], form.cleaned_data["reason"])
        else:
            messages.error(request, f"Nothing was done. Reason: {' '.join(map(str, form.errors['reason']))}")
        return HttpResponseRedirect(self.url_of(object_id))

    def _button(self, verb: Verb, job: Any) -> dict[str, Any]:
        address = reverse(f"admin:pgjobs_job_{verb.name}", args=[job.pk], current_app=self.admin_site.name)
        fits = job.status in verb.sources
        text = verb.effect if fits else f"It is {job.status}; {verb.rule} can be {verb.done}."
        return {"label": verb.name.capitalize(), "url": address, "fits": fits, "text": text}

    @admin.display(description="payload")
    def payload_text(self, job: Any) -> str:
        """The keyword arguments."""
        return values.as_json(job.payload)

    @admin.display(description="result")
    def result_text(self, job: Any) -> str:
        """What the handler returned."""
        return "none" if job.result is None else values.as_json(job.result)

    @admin.display(description="last error")
    def last_error_text(self, job: Any) -> str:
        """The latest message."""
        return values.preformatted(job.last_error) if job.last_error else "none"

    @admin.display(description="ended attempts")
    def error_history(self, job: Any) -> str:
        """All that is kept, with tracebacks."""
        return values.error_history(job.errors)
