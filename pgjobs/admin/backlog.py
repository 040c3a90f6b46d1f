"""The backlog: what waits, where, and since when."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from pgjobs.admin.ages import in_words
from pgjobs.admin.jobs import LedToJobAdmin
from pgjobs.queue import stats
from pgjobs.queue.proxies import Backlog
from pgjobs.queue.states import JobStatus


@admin.register(Backlog)
class BacklogAdmin(LedToJobAdmin):
    """A page of counts in the place of a list of rows."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """One row per queue, and one per waiting job type that no handler here carries."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Backlog",
            "opts": self.opts,
            "media": self.media,
            "queues": [self._queue(each) for each in stats.backlog()],
            "unknown": [self._unknown(each) for each in stats.unknown_waiting()],
            **(extra_context or {}),
        }
        return TemplateResponse(request, "pgjobs/admin/backlog.html", context)

    def _queue(self, each: stats.QueueBacklog) -> dict[str, Any]:
        return {
            "name": each.queue,
            "url": self._jobs(queue=each.queue),
            "due": _count(each.due),
            "later": _count(each.later),
            "running": _count(each.running),
            "oldest": in_words(each.oldest_wait),
            "workers": each.live_workers,
            "unserved": each.due and not each.live_workers,
        }

    def _unknown(self, each: stats.UnknownWaiting) -> dict[str, Any]:
        due = each.oldest_wait.total_seconds() >= 0
        return {
            "job_type": each.job_type,
            "url": self._jobs(queue=each.queue, job_type=each.job_type),
            "queue": each.queue,
            "jobs": _count(each.jobs),
            "oldest": in_words(each.oldest_wait) if due else "not due yet",
        }

    def _jobs(self, **filters: str) -> str:
        address = reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name)
        return f"{address}?{urlencode({'status': JobStatus.PENDING.value, **filters})}"


def _count(number: int) -> str:
    return f"{stats.COUNT_LIMIT:,}+" if number > stats.COUNT_LIMIT else f"{number:,}"
