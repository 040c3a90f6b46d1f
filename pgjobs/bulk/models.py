"""The table of bulk operations: what is to be done to what, how fast, and how far it is. No verbs."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from pgjobs.bulk.states import BulkState

RUNNING_SQL = "EXISTS (SELECT 1 FROM pgjobs_bulkoperation WHERE state = 'running')"
"""An SQL expression: whether any is to be carried on."""


class BulkOperation(models.Model):
    """One verb on all jobs that match a filter. The cursor moves in the transaction that moves the jobs."""

    id = models.BigAutoField(primary_key=True)
    verb = models.CharField(max_length=16)
    filter = models.JSONField(help_text="by column: status, queue, job_type, …")
    options = models.JSONField(default=dict, blank=True, help_text="of the verb")
    upper_id = models.BigIntegerField(help_text="jobs above it came later and are not meant")
    before = models.DateTimeField(help_text="jobs that ended later are not meant")
    reason = models.TextField()
    actor = models.CharField(max_length=200)
    user_id = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is "no user"
    via = models.CharField(max_length=16)
    pace = models.FloatField(null=True, blank=True, help_text="jobs a second; null: as fast as it goes")
    canary = models.IntegerField(null=True, blank=True, help_text="so many first, then wait for a person")
    canary_released_at = models.DateTimeField(null=True, blank=True)
    stop_share = models.FloatField(null=True, blank=True, help_text="stop when more of the first die again")
    stop_first = models.IntegerField(null=True, blank=True, help_text="how many the first are")
    state = models.CharField(max_length=16, choices=BulkState, default=BulkState.PREVIEWED)
    note = models.TextField(default="", blank=True, help_text="how it came to stand here")
    total = models.IntegerField(default=0, help_text="matches when it was planned, counted to 10,001")
    done = models.IntegerField(default=0)
    skipped = models.IntegerField(
        default=0, help_text="left the state meanwhile, or held by another transaction"
    )
    conflict = models.IntegerField(default=0)
    failed = models.IntegerField(default=0, help_text="of those watched, ended without success again")
    watched = models.JSONField(default=list, blank=True, help_text="ids of the first that were done")
    conflicts = models.JSONField(default=list, blank=True, help_text="the first 200: id and why")
    cursor_at = models.DateTimeField(null=True, blank=True)
    cursor_id = models.BigIntegerField(default=0)
    paced_from = models.DateTimeField(null=True, blank=True)
    allowance = models.FloatField(default=0, help_text="jobs that the pace allowed then")
    carried_by = models.CharField(
        max_length=200, default="", blank=True, help_text="who did the latest batch"
    )
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    progress_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "bulk operation"
        verbose_name_plural = "bulk"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=BulkState.values), name="pgjobs_bulk_state"),
        ]
        indexes = [
            models.Index(fields=["id"], name="pgjobs_bulk_running", condition=models.Q(state="running")),
        ]

    def __str__(self) -> str:
        return f"bulk {self.pk}: {self.verb}"
