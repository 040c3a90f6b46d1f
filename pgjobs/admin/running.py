"""What is being worked on: whose lease ends first or has ended, how far it is, and who holds it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from pgjobs.admin import charts, jobfacts, jobverbs, marks
from pgjobs.admin.ages import in_words, lease_in_words
from pgjobs.admin.frames import ListPage
from pgjobs.admin.joblist import LedToJobAdmin
from pgjobs.admin.limits import panel
from pgjobs.admin.verbs import expected
from pgjobs.conf import get_settings
from pgjobs.health.workers import SILENT
from pgjobs.queue import rollups, stats
from pgjobs.queue.models import Minute, Worker
from pgjobs.queue.states import JobStatus

SHOWN = 500
_FILTERS = {"queue": "queue", "job_type": "job_type", "worker": "lease_owner"}


class RunningJobAdmin(ListPage, LedToJobAdmin):
    """A table that refreshes itself; as many rows as the workers have slots."""

    list_template, list_seconds = "pgjobs/admin/running.html", 5

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The lease that ends first, or is overdue the longest, at the top."""
        held = super().get_queryset(request).filter(status=JobStatus.RUNNING.value)
        return held.order_by("lease_expires_at", "-pk").defer("payload", "result", "errors", "last_error")

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """What the page shows."""
        held = panel(lambda: self._held(request))
        verbs = [each for each in ("cancel", "release") if jobverbs.may(self, request, each)]
        return {
            "held": held,
            "waiting": panel(self._waiting) if not held.problem and not held.value["rows"] else None,
            "filters": {name: request.GET[name] for name in _FILTERS if request.GET.get(name)},
            "lost": request.GET.get("lost") == "1",
            "may_cancel": "cancel" in verbs,
            "may_release": "release" in verbs,
            "many_url": reverse("admin:pgjobs_job_cancel_ticked", current_app=self.admin_site.name),
        }

    def _held(self, request: HttpRequest) -> dict[str, Any]:
        rows = self.get_queryset(request)
        for name, column in _FILTERS.items():
            if value := request.GET.get(name, ""):
                rows = rows.none() if "\x00" in value else rows.filter(**{column: value})
        jobs = list(rows[: SHOWN + 1])
        if request.GET.get("lost") == "1":
            jobs = [job for job in jobs if job.lease_expires_at < job.clock]
        names = {job.lease_owner for job in jobs}
        workers = Worker._base_manager.using(get_settings().database).filter(name__in=names)
        beats = {
            name: (at, SILENT * (seconds or get_settings().heartbeat_seconds))
            for name, at, seconds in workers.values_list("name", "heartbeat_at", "heartbeat_seconds")
        }
        usual = _usual({job.job_type for job in jobs})
        lapsed = sum(job.lease_expires_at < job.clock for job in jobs)
        return {
            "rows": [self._row(job, beats, usual.get(job.job_type)) for job in jobs[:SHOWN]],
            "more": len(jobs) > SHOWN,
            "count": marks.count(len(jobs), SHOWN),
            "lapsed": lapsed,
        }

    def _row(self, job: Any, beats: dict[str, tuple[Any, float]], usual: float | None) -> dict[str, Any]:
        left: timedelta = job.lease_expires_at - job.clock
        beat, patience = beats.get(job.lease_owner, (None, 0.0))
        silent = beat is not None and (job.clock - beat).total_seconds() > patience
        share = left.total_seconds() / get_settings().lease_seconds
        lapsed = left < timedelta()
        site = self.admin_site.name
        return {
            "id": str(job.pk),
            "url": self.url_of(job.pk),
            "job_type": job.job_type,
            "queue": job.queue,
            "lease": lease_in_words(left),
            "lapsed": lapsed,
            "gauge": charts.gauge(
                share, f"{max(share, 0):.0%} of the lease left", "ok" if share > 0.3 else "wait"
            ),
            "worker": job.lease_owner,
            "beat": "unknown" if beat is None else f"{in_words(job.clock - beat)} ago",
            "silent": silent,
            "running_for": self.running_for(job),
            "usual": _compared(job, usual),
            "attempts": self.attempts(job),
            "progress": jobfacts.progress(job),
            "share": _progress(job.progress),
            "seen": f"{job.pk}:{expected(job)}",
            "expected": expected(job),
            "cancel_url": reverse("admin:pgjobs_job_cancel", args=[job.pk], current_app=site),
            "release_url": reverse("admin:pgjobs_job_release", args=[job.pk], current_app=site),
        }

    def _waiting(self) -> list[dict[str, str]]:
        address = reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name)
        return [
            {
                "queue": each.queue,
                "count": marks.count(each.due),
                "url": f"{address}?{urlencode({'status': 'ready', 'queue': each.queue})}",
            }
            for each in stats.backlog()
            if each.due
        ]


def _usual(job_types: set[str]) -> dict[str, float]:
    """Seconds below which 19 of 20 attempts of a type stayed, of all times; types without any are left out."""
    found: dict[str, list[int]] = {}
    kept = Minute._base_manager.using(get_settings().database).filter(minute=rollups.LIFETIME)
    for job_type, counts in kept.filter(job_type__in=job_types).values_list("job_type", "run_counts"):
        found[job_type] = rollups.summed(found.get(job_type, []), counts or [])
    known = {job_type: rollups.percentile(counts, 0.95) for job_type, counts in found.items()}
    return {job_type: seconds for job_type, seconds in known.items() if seconds}


def _compared(job: Any, usual: float | None) -> str:
    """How the time it runs compares with what is usual."""
    if usual is None or job.started_at is None:
        return "-"
    times = (job.clock - job.started_at).total_seconds() / usual
    return f"×{times:,.0f}" if times >= 1.5 else "usual"


def _progress(value: Any) -> Any:
    done, total = (value.get("done"), value.get("total")) if isinstance(value, dict) else (None, None)
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return ""
    return charts.gauge(done / total, f"{done / total:.0%} done")
