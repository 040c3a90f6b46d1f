"""Workers: which processes live, by the age of their heartbeat rather than by what they once said."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from pgjobs.admin import marks, navigation
from pgjobs.admin.ages import in_words, lease_in_words, moment
from pgjobs.admin.frames import ListPage, RowPage
from pgjobs.admin.limits import panel
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.conf import get_settings
from pgjobs.health.reading import Reader
from pgjobs.health.workers import WorkerRow, read_workers
from pgjobs.queue.models import Job
from pgjobs.queue.states import JobStatus

_SECONDS = 5
_MOST_JOBS = 200
_KINDS = {
    "live": "ok",
    "late": "wait",
    "silent": "bad",
    "wedged": "bad",
    "draining": "wait",
    "stopped": "muted",
}


class WorkerAdmin(ListPage, RowPage, ReadOnlyAdmin):
    """One row per process, the present ones first."""

    view_permission = "pgjobs.view_worker"
    list_template, list_seconds = "pgjobs/admin/workers.html", _SECONDS
    row_template, row_seconds, row_word = "pgjobs/admin/worker.html", _SECONDS, "Worker"

    def url_of(self, pk: Any) -> str:
        """The worker's page."""
        return reverse("admin:pgjobs_worker_change", args=[pk], current_app=self.admin_site.name)

    def page(self, request: HttpRequest, row: Any) -> HttpResponse:
        """One process: what it does and what it holds."""
        return self.framed(request, f"Worker {row.name}", lambda: self._one(request, row.pk, str(row.name)))

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """All of them; those that have stopped are folded away."""
        return {"workers": panel(lambda: self._list(request))}

    def _list(self, request: HttpRequest) -> dict[str, Any]:
        with Reader(get_settings().database) as reader:
            _, workers = read_workers(reader)
        wanted = {name: request.GET.get(name, "") for name in ("state", "queue", "host", "version")}
        shown = [worker for worker in workers if _matches(worker, wanted)]
        states = Counter(worker.state for worker in workers)
        versions = Counter(worker.code_version or worker.version for worker in workers if worker.is_serving)
        return {
            "present": [self._row(worker) for worker in shown if worker.state != "stopped"],
            "stopped": [self._row(worker) for worker in shown if worker.state == "stopped"],
            "states": [(name, str(states[name])) for name in _KINDS if states[name]],
            "versions": [(name, str(count)) for name, count in versions.most_common()],
            "filters": {name: value for name, value in wanted.items() if value},
        }

    def _row(self, worker: WorkerRow) -> dict[str, Any]:
        poll = worker.poll_age
        return {
            "url": self.url_of(worker.id),
            "name": worker.name,
            "host": f"{worker.host}:{worker.pid}",
            "state": marks.state(worker.state, _words(worker)),
            "kind": worker.state,
            "queues": ", ".join(worker.queues) or "all",
            "busy": f"{'?' if worker.busy is None else worker.busy} of {worker.slots}",
            "beat": f"{in_words(worker.heartbeat_age)} ago",
            "poll": "never" if poll is None else f"{in_words(poll)} ago",
            "done": moment(worker.last_done_at, worker.clock),
            "memory": "-" if worker.rss_bytes is None else f"{worker.rss_bytes / 1_000_000:,.0f} MB",
            "started": moment(worker.started_at, worker.clock),
            "version": worker.code_version or "-",
            "package": worker.version,
        }

    def _one(self, request: HttpRequest, pk: int, name: str) -> dict[str, Any]:
        def read() -> Any:
            with Reader(get_settings().database) as reader:
                _, workers = read_workers(reader)
            return next((self._row(worker) for worker in workers if worker.id == pk), None)

        return {
            "worker": panel(read),
            "jobs": panel(lambda: self._jobs(request, name)),
            "activity_url": navigation.activity(self.admin_site, request, target=f"worker:{name}"),
        }

    def _jobs(self, request: HttpRequest, name: str) -> list[dict[str, Any]] | None:
        if not request.user.has_perm("pgjobs.view_job"):
            return None
        held = Job._base_manager.using(get_settings().database).filter(
            status=JobStatus.RUNNING.value, lease_owner=name
        )
        columns = ("pk", "job_type", "queue", "lease_expires_at", "started_at", "attempt_count", "clock")
        site = self.admin_site.name
        return [
            {
                "id": str(pk),
                "url": reverse("admin:pgjobs_job_change", args=[pk], current_app=site),
                "job_type": job_type,
                "queue": queue,
                "lease": lease_in_words(ends - clock),
                "running_for": in_words(clock - started if started else None),
                "attempt": str(attempt),
            }
            for pk, job_type, queue, ends, started, attempt, clock in held.annotate(clock=Now())
            .order_by("lease_expires_at", "pk")
            .values_list(*columns)[:_MOST_JOBS]
        ]


def _words(worker: WorkerRow) -> str:
    if not worker.slots:
        return f"runreaper, seen {in_words(worker.heartbeat_age)} ago"
    if worker.stopped_at:
        return f"stopped {in_words(worker.clock - worker.stopped_at)} ago"
    if worker.state == "silent":
        return f"silent for {in_words(worker.heartbeat_age)}"
    return worker.state


def _matches(worker: WorkerRow, wanted: dict[str, str]) -> bool:
    return (
        wanted["state"] in ("", worker.state)
        and wanted["host"] in ("", worker.host)
        and wanted["version"] in ("", worker.code_version or worker.version)
        and (not wanted["queue"] or worker.serves(wanted["queue"]))
    )
