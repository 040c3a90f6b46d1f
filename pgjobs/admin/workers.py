"""Workers: which processes live, by the age of their heartbeat rather than by what they once said."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Count, F, IntegerField, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse

from pgjobs.admin.ages import in_words
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.queue.models import Job, Worker
from pgjobs.queue.states import JobStatus
from pgjobs.queue.stats import silence_seconds


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """One row per process, the present ones first."""

    view_permission = "pgjobs.view_worker"
    fields = (
        "state",
        "name",
        "host",
        "pid",
        "version",
        "serves",
        "busy",
        "started_at",
        "heartbeat",
        "last_poll",
        "stopped_at",
    )
    list_display = ("name", "state", "host", "pid", "serves", "busy", "heartbeat", "last_poll", "version")
    ordering = (F("stopped_at").desc(nulls_first=True), "-pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With the number of jobs that each holds."""
        held = (
            Job._base_manager.filter(status=JobStatus.RUNNING.value, lease_owner=OuterRef("name"))
            .order_by()
            .values("lease_owner")
            .annotate(jobs=Count("pk"))
            .values("jobs")
        )
        count = Coalesce(Subquery(held, output_field=IntegerField()), Value(0))
        rows: QuerySet[Any] = super().get_queryset(request).annotate(held=count)
        return rows

    def url_of(self, pk: Any) -> str:
        """The worker's page."""
        return reverse("admin:pgjobs_worker_change", args=[pk], current_app=self.admin_site.name)

    @admin.display(description="state")
    def state(self, worker: Any) -> str:
        """``stopped`` said goodbye; ``silent`` has not been heard of for a whole lease."""
        if worker.stopped_at:
            return f"stopped {in_words(worker.clock - worker.stopped_at)} ago"
        silence = worker.clock - worker.heartbeat_at
        return "live" if silence < timedelta(seconds=silence_seconds()) else f"silent for {in_words(silence)}"

    @admin.display(description="queues")
    def serves(self, worker: Any) -> str:
        """What it claims from."""
        named = worker.queues if isinstance(worker.queues, list) else [worker.queues]
        return ", ".join(map(str, named)) or "all"

    @admin.display(description="busy")
    def busy(self, worker: Any) -> str:
        """Slots in use."""
        return f"{worker.held} of {worker.slots}"

    @admin.display(description="heartbeat")
    def heartbeat(self, worker: Any) -> str:
        """The process is alive."""
        return f"{in_words(worker.clock - worker.heartbeat_at)} ago"

    @admin.display(description="last poll")
    def last_poll(self, worker: Any) -> str:
        """Its claim loop turns; old beside a fresh heartbeat means that the loop hangs."""
        return f"{in_words(worker.clock - worker.last_poll_at)} ago" if worker.last_poll_at else "never"
