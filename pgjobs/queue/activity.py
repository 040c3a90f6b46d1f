"""What happened, one row a thing: bounded, for people. Written in the transaction in which it happened.

Workers, operators' verbs, workflows and approvals are noted by triggers of the database, whoever moves their rows; what
settlements and the reaper do, by their own statements. Nothing is written for an attempt that succeeds or is retried,
unless its error is one that nobody has seen before.
"""

from __future__ import annotations

import math
import threading
import time

from django.db import models
from django.db.models.functions import Now

from pgjobs.conf import get_settings
from pgjobs.connections import rows

PRUNE_BATCH = 1_000
CAUSE_DAYS = 30
"""An error that nobody has met for so long is new when it comes again."""


class Activity(models.Model):
    """One thing that happened. ``at`` lies ahead for the end of a pause that is to come."""

    class Kind(models.TextChoices):
        """What."""

        WORKER_STARTED = "worker_started", "worker started"
        WORKER_STOPPED = "worker_stopped", "worker stopped"
        LEASE_RECLAIMED = "lease_reclaimed", "lease reclaimed"
        ERROR_NEW = "error_new", "new error"
        JOB_DIED = "job_died", "job died"
        PAUSED = "paused", "paused"
        RESUMED = "resumed", "resumed"
        BULK = "bulk", "bulk operation"
        EXECUTION_PAUSED = "execution_paused", "workflow paused"
        EXECUTION_FAILED = "execution_failed", "workflow failed"
        APPROVAL = "approval", "approval"
        OPERATOR = "operator", "other verb of a person"

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now(), editable=False)
    kind = models.CharField(max_length=32, choices=Kind)
    queue = models.CharField(max_length=100, default="", db_default="", blank=True)
    job_type = models.CharField(max_length=200, default="", db_default="", blank=True)
    workflow = models.CharField(max_length=200, default="", db_default="", blank=True)
    actor = models.CharField(max_length=200, default="", db_default="", blank=True)
    target_kind = models.CharField(max_length=16, default="", db_default="", blank=True)
    target_id = models.CharField(
        max_length=200, default="", db_default="", blank=True, help_text="id, or name of a queue or worker"
    )
    fingerprint = models.CharField(max_length=40, default="", db_default="", blank=True)
    details = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()), blank=True)

    class Meta:
        verbose_name = "activity"
        verbose_name_plural = "activity"
        default_permissions = ("view",)
        indexes = [
            models.Index(fields=["at", "id"], name="pgjobs_activity_at"),
            models.Index(fields=["kind", "at", "id"], name="pgjobs_activity_kind"),
            *(
                models.Index(
                    fields=[column, "at", "id"],
                    name=f"pgjobs_activity_{column}",
                    condition=models.Q(**{f"{column}__gt": ""}),
                )
                for column in ("queue", "job_type", "workflow")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} at {self.at}"


class Cause(models.Model):
    """An error that has been met, by its fingerprint: what tells a new one from the old ones."""

    fingerprint = models.CharField(max_length=40, primary_key=True)
    first_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now(), help_text="to within a day")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="when it first ended a job")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.fingerprint


_PRUNE = """
WITH gone AS (
    DELETE FROM pgjobs_activity WHERE id = ANY(ARRAY(
        SELECT oldest.id FROM (SELECT id, at FROM pgjobs_activity ORDER BY id LIMIT %(batch)s) AS oldest
        WHERE oldest.at < statement_timestamp() - make_interval(secs => %(age)s)
           OR oldest.id <= (SELECT max(id) FROM pgjobs_activity) - %(most)s))
    RETURNING 1),
forgotten AS (
    DELETE FROM pgjobs_cause WHERE fingerprint = ANY(ARRAY(
        SELECT fingerprint FROM pgjobs_cause
        WHERE seen_at < statement_timestamp() - make_interval(days => %(cause_days)s)
        ORDER BY fingerprint LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
    RETURNING 1)
SELECT GREATEST((SELECT count(*) FROM gone), (SELECT count(*) FROM forgotten))"""


def prune(*, using: str) -> int:
    """Delete up to :data:`PRUNE_BATCH` rows beyond ACTIVITY_DAYS or ACTIVITY_ROWS, the oldest first, and as many causes
    that nobody has met for :data:`CAUSE_DAYS`. The larger number of both: that many mean that more may be left."""
    settings = get_settings()
    params = {
        "batch": PRUNE_BATCH,
        "age": settings.activity_days * 86_400.0,
        "most": settings.activity_rows,
        "cause_days": CAUSE_DAYS,
    }
    ((gone,),) = rows(using, _PRUNE, params)
    return int(gone)


# Over what a settlement has moved. Lock order: jobs by id, then causes by fingerprint, then whoever waits for a job.
_ENDS = """
WITH moved AS ({settle}),
ends AS (
    SELECT status, queue, job_type, fingerprint, (array_agg(id ORDER BY id))[1:5] AS ids, count(*) AS jobs,
           min(error_class) AS error
    FROM moved WHERE fingerprint = ANY(%(noted)s::text[]) GROUP BY status, queue, job_type, fingerprint
),
met AS (
    INSERT INTO pgjobs_cause AS cause (fingerprint, ended_at)
    SELECT fingerprint, CASE WHEN ended THEN statement_timestamp() END
    FROM (SELECT fingerprint, bool_or(status <> 'pending') AS ended FROM ends GROUP BY fingerprint) AS each
    WHERE NOT EXISTS (SELECT FROM pgjobs_cause AS known WHERE known.fingerprint = each.fingerprint
                      AND known.seen_at > statement_timestamp() - interval '1 day'
                      AND (known.ended_at IS NOT NULL OR NOT each.ended))
    ORDER BY fingerprint
    ON CONFLICT (fingerprint) DO UPDATE
    SET seen_at = statement_timestamp(), ended_at = COALESCE(cause.ended_at, EXCLUDED.ended_at)
    RETURNING fingerprint, first_at = seen_at AS is_new
),
noted AS (
    INSERT INTO pgjobs_activity (kind, queue, job_type, target_kind, target_id, fingerprint, details)
    SELECT kind, queue, job_type, 'job', ids[1], fingerprint,
           jsonb_build_object('error', error, 'status', status, 'ids', to_jsonb(ids), 'count', jobs)
    FROM ends CROSS JOIN LATERAL (
        SELECT 'error_new' AS kind WHERE EXISTS (
            SELECT FROM met WHERE met.fingerprint = ends.fingerprint AND met.is_new)
        UNION ALL SELECT 'job_died' WHERE ends.status <> 'pending') AS told
    ORDER BY ids[1], kind
)
SELECT id FROM moved"""

_MET_AGAIN = 12 * 3600.0  # half of what the table of causes is behind
_DIED_AGAIN = 60.0
_MOST_KNOWN = 10_000


def noting_ends(settle: str) -> str:
    """SQL: ``settle``, which returns what it has moved, with a note of errors that are new and of jobs that died.

    It still returns ids. ``%(noted)s`` are the fingerprints to look at.
    """
    return _ENDS.format(settle=settle)


class Notes:
    """Which errors this process has noted lately, so that a flood of failures costs as much as one.

    Of jobs that die of one error each process makes one note a minute.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._met: dict[str, float] = {}
        self._died: dict[str, float] = {}

    def wanted(self, met: set[str], died: set[str]) -> set[str]:
        """Of the fingerprints of failures, and of those among them that end a job: those to be noted."""
        now = time.monotonic()
        with self._lock:
            return {name for name in met if now > self._met.get(name, -math.inf) + _MET_AGAIN} | {
                name for name in died if now > self._died.get(name, -math.inf) + _DIED_AGAIN
            }

    def made(self, met: set[str], died: set[str]) -> None:
        """They have been noted, and that is committed."""
        now = time.monotonic()
        with self._lock:
            for known, names in ((self._met, met), (self._died, met & died)):
                if len(known) > _MOST_KNOWN:
                    known.clear()
                known.update(dict.fromkeys(names, now))
