"""The tables of the queue. Columns, constraints and indexes; no verbs."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Now

from pgjobs.exceptions import AppendOnly
from pgjobs.leases.models import LeasedRow, claim_indexes, running_means_leased
from pgjobs.leases.states import LeaseRules
from pgjobs.queue.fingerprints import LOST, LOST_FINGERPRINT
from pgjobs.queue.states import JobStatus


class Job(LeasedRow):
    """One piece of work: a registered handler's name and its keyword arguments."""

    LEASE: ClassVar[LeaseRules] = LeaseRules(
        label="job",
        kind_column="job_type",
        claimable=JobStatus.PENDING.value,
        exhausted=JobStatus.DEAD.value,
        exhausted_reason_column="note",
        exhausted_is_final=True,
        lost_class=LOST,
        lost_fingerprint=LOST_FINGERPRINT,
    )

    job_type = models.CharField(max_length=200, help_text="the registered handler that runs it")
    payload = models.JSONField(
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        blank=True,
        help_text="keyword arguments",
    )
    status = models.CharField(
        max_length=16, choices=JobStatus, default=JobStatus.PENDING, db_default=JobStatus.PENDING.value
    )
    max_attempts = models.IntegerField(default=5, db_default=5)
    completed_by = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is "not yet"
    idempotency_key = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001 - null is "none"
    result = models.JSONField(null=True, blank=True)
    progress = models.JSONField(null=True, blank=True, help_text="done, total, note")
    awaited = models.BooleanField(
        default=False, db_default=False, help_text="somebody is woken by the transaction that ends it"
    )
    note = models.TextField(default="", db_default="", blank=True, help_text="how it came to stand here")
    error_class = models.CharField(max_length=300, null=True, blank=True)  # noqa: DJ001 - null is "none yet"
    fingerprint = models.CharField(  # noqa: DJ001 - null is "none yet"
        max_length=40, null=True, blank=True, help_text="one for all failures of one cause"
    )
    discarded_at = models.DateTimeField(null=True, blank=True, help_text="put out of sight by a person")
    copied_from = models.BigIntegerField(
        null=True, blank=True, help_text="id of the job it is an edited copy of"
    )
    superseded_by = models.BigIntegerField(null=True, blank=True, help_text="id of its edited copy")

    class Meta:
        verbose_name = "job"
        verbose_name_plural = "jobs"
        permissions = [
            ("retry_job", "Can retry jobs"),
            ("cancel_job", "Can cancel jobs"),
            ("reschedule_job", "Can make waiting jobs due"),
            ("release_job", "Can take running jobs from their holder"),
            ("discard_job", "Can discard and restore jobs"),
            ("edit_payload", "Can retry jobs with another payload"),
            ("view_payload", "Can see what is redacted in payloads and results"),
            ("bulk_job", "Can act on all jobs that match a filter"),
        ]
        constraints = [
            running_means_leased("pgjobs_job_lease"),
            models.CheckConstraint(condition=models.Q(status__in=JobStatus.values), name="pgjobs_job_status"),
            models.CheckConstraint(
                condition=models.Q(max_attempts__gte=1, max_crashes__gte=1), name="pgjobs_job_budgets"
            ),
        ]
        indexes = [
            *claim_indexes("pgjobs_job", JobStatus.PENDING.value),
            # Lists of what has ended are counted and filtered by type and queue without a look at the rows.
            *(
                models.Index(
                    fields=["-completed_at", "-id", "job_type", "queue"],
                    name=f"pgjobs_job_{status}_shown",
                    condition=models.Q(status=status, discarded_at__isnull=True),
                )
                for status in (JobStatus.FAILED.value, JobStatus.DEAD.value, JobStatus.CANCELLED.value)
            ),
            models.Index(
                fields=["status", "-completed_at", "-id", "job_type", "queue"],
                name="pgjobs_job_discarded",
                condition=models.Q(discarded_at__isnull=False),
            ),
            models.Index(
                fields=["fingerprint", "-id"],
                name="pgjobs_job_fingerprint",
                condition=models.Q(
                    status__in=[JobStatus.DEAD.value, JobStatus.FAILED.value], discarded_at__isnull=True
                ),
            ),
        ]


class ArchivedJob(models.Model):
    """An ended job out of the way of the live table: the same columns without the lease, one partition a month.

    The key of the table is (id, completed_at), since PostgreSQL wants the partition's column in it; ids are unique
    all the same, because a job is archived once and never comes back.
    """

    id = models.BigIntegerField(primary_key=True)
    job_type = models.CharField(max_length=200)
    queue = models.CharField(max_length=100)
    payload = models.JSONField(blank=True)
    status = models.CharField(max_length=16, choices=JobStatus)
    priority = models.SmallIntegerField()
    attempt_count = models.IntegerField()
    max_attempts = models.IntegerField()
    crash_count = models.IntegerField()
    max_crashes = models.IntegerField()
    created_at = models.DateTimeField()
    available_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField()
    completed_by = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is "unknown"
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)
    errors = models.JSONField(blank=True)
    idempotency_key = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001 - null is "none"
    result = models.JSONField(null=True, blank=True)
    progress = models.JSONField(null=True, blank=True)
    awaited = models.BooleanField()
    note = models.TextField(blank=True)
    discarded_at = models.DateTimeField(null=True, blank=True)
    copied_from = models.BigIntegerField(null=True, blank=True)
    superseded_by = models.BigIntegerField(null=True, blank=True)
    error_class = models.CharField(max_length=300, null=True, blank=True)  # noqa: DJ001 - null is "none"
    fingerprint = models.CharField(max_length=40, null=True, blank=True)  # noqa: DJ001 - null is "none"
    archived_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "archived job"
        verbose_name_plural = "archived jobs"
        default_permissions = ()  # who may see jobs may see these

    def __str__(self) -> str:
        return f"archived job {self.pk} ({self.job_type})"


class JobResult(models.Model):
    """The one effect of an idempotency key, by whoever produced it first."""

    idempotency_key = models.CharField(max_length=255, primary_key=True)
    # No database constraint: the result outlives the row of the job when old jobs are removed.
    job = models.ForeignKey(
        Job, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    produced_by = models.CharField(max_length=200)
    produced_at = models.DateTimeField(db_default=Now(), editable=False)
    result = models.JSONField(null=True, blank=True)

    class Meta:
        verbose_name = "job result"
        verbose_name_plural = "job results"

    def __str__(self) -> str:
        return self.idempotency_key


class Worker(models.Model):
    """One process that claims. The name is new at every start, so that no process inherits another's leases."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=200, unique=True)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    version = models.CharField(max_length=50)
    queues = models.JSONField(default=list, help_text="empty: all queues")
    slots = models.IntegerField(help_text="jobs it runs at a time")
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    last_poll_at = models.DateTimeField(null=True, blank=True)
    stopped_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.CharField(
        max_length=200, default="", db_default="", blank=True, help_text="empty: it stopped in order"
    )
    last_done_at = models.DateTimeField(null=True, blank=True, help_text="latest end of a job or a turn")
    busy = models.IntegerField(null=True, blank=True, help_text="slots in use at the last heartbeat")
    rss_bytes = models.BigIntegerField(null=True, blank=True, help_text="memory at the last heartbeat")
    heartbeat_seconds = models.FloatField(null=True, blank=True)
    handlers = models.JSONField(null=True, blank=True, help_text="job types and workflows it knows")
    code_version = models.CharField(max_length=100, default="", db_default="", blank=True)
    draining = models.BooleanField(default=False, db_default=False, help_text="finishes and claims no more")
    chores = models.JSONField(
        null=True, blank=True, help_text="when it last did each, as at the last heartbeat"
    )
    runtime = models.JSONField(
        null=True, blank=True, help_text="versions of Python and of what it works with"
    )

    class Meta:
        verbose_name = "worker"
        verbose_name_plural = "workers"

    def __str__(self) -> str:
        return self.name


class Counts(models.Field):  # type: ignore[type-arg]
    """An array of bigint. (Django's own ArrayField wants ``django.contrib.postgres`` installed.)"""

    def db_type(self, connection: Any) -> str:
        """The column's type."""
        return "bigint[]"


class SmallCounts(models.Field):  # type: ignore[type-arg]
    """An array of integer: in an hour there are not more."""

    def db_type(self, connection: Any) -> str:
        """The column's type."""
        return "integer[]"


class Figures(models.Model):
    """How many jobs of one type in one queue came to which end in one stretch, and how long they waited and ran."""

    queue = models.CharField(max_length=100)
    job_type = models.CharField(max_length=200)
    done = models.BigIntegerField(default=0, db_default=0, help_text="succeeded")
    failed = models.BigIntegerField(default=0, db_default=0, help_text="ended: it can never work")
    dead = models.BigIntegerField(default=0, db_default=0, help_text="ended: the attempts are spent")
    retried = models.BigIntegerField(default=0, db_default=0, help_text="attempts with another to come")
    wait_seconds = models.FloatField(default=0.0, db_default=0.0, help_text="sum, from due to claimed")
    run_seconds = models.FloatField(default=0.0, db_default=0.0, help_text="sum")
    wait_counts = Counts(help_text="attempts by bucket of pgjobs.queue.rollups.BOUNDS")
    run_counts = Counts(help_text="the same of how long they ran")

    class Meta:
        abstract = True


class Minute(Figures):
    """Of one minute. The row of 1970 has the sums of all times: those of a queue never fall, whatever is pruned."""

    pk = models.CompositePrimaryKey("minute", "queue", "job_type")
    minute = models.DateTimeField()
    seen_on = models.DateField(db_default=Now(), editable=False, help_text="last added to")

    class Meta:
        default_permissions = ()
        indexes = [
            models.Index(fields=["minute"], name="pgjobs_minute_dead", condition=models.Q(dead__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.job_type} in {self.queue} at {self.minute}"


class Hour(Figures):
    """Of one hour that has ended."""

    pk = models.CompositePrimaryKey("hour", "queue", "job_type")
    hour = models.DateTimeField()
    wait_counts = SmallCounts(help_text="attempts by bucket of pgjobs.queue.rollups.BOUNDS")
    run_counts = SmallCounts(help_text="the same of how long they ran")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.job_type} in {self.queue} in the hour from {self.hour}"


class _AppendOnlyRows(models.QuerySet["OperatorAction"]):
    def update(self, **columns: Any) -> int:
        """Refused. Raises :class:`AppendOnly`."""
        raise AppendOnly("operator actions")

    def delete(self) -> tuple[int, dict[str, int]]:
        """Refused. Raises :class:`AppendOnly`."""
        raise AppendOnly("operator actions")


class OperatorAction(models.Model):
    """What a person, or code in a person's name, did or tried: one row an operation, written in its transaction.

    Never changed and never deleted but by retention; a trigger of the database sees to it.
    """

    class Via(models.TextChoices):
        """The face it came through."""

        ADMIN = "admin", "admin"
        COMMAND = "command", "command line"
        API = "api", "Python"

    class Target(models.TextChoices):
        """What it was done to."""

        JOB = "job", "job"
        QUEUE = "queue", "queue"
        TYPE = "type", "job type"
        EXECUTION = "execution", "workflow execution"
        APPROVAL = "approval", "approval"
        BULK = "bulk", "bulk operation"
        WORKER = "worker", "worker"
        ERROR = "error", "error"

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now(), editable=False)
    actor = models.CharField(max_length=200, help_text="name, kept when the user is gone")
    user_id = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is "no user"
    via = models.CharField(max_length=16, choices=Via)
    verb = models.CharField(max_length=40)
    target_kind = models.CharField(max_length=16, choices=Target)
    target_ids = models.JSONField(default=list, help_text="the first 100: ids, or names of queues and types")
    target_count = models.IntegerField(default=0)
    reason = models.TextField(default="", blank=True)
    done = models.IntegerField(default=0)
    skipped = models.IntegerField(default=0, help_text="to which the verb did not apply")
    refused = models.IntegerField(default=0, help_text="by a conflict, or for want of a permission")
    details = models.JSONField(default=dict, blank=True, help_text="options, before and after; no secrets")

    objects = _AppendOnlyRows.as_manager()

    class Meta:
        verbose_name = "operator action"
        verbose_name_plural = "audit"
        default_permissions = ("view",)  # the index of target_ids is made by hand, in the migration

    def __str__(self) -> str:
        return f"{self.verb} of {self.target_count} {self.target_kind}(s) by {self.actor}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert it. Raises :class:`AppendOnly` for a row that is there."""
        if not self._state.adding:
            raise AppendOnly(f"operator action {self.pk}")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Refused. Raises :class:`AppendOnly`."""
        raise AppendOnly(f"operator action {self.pk}")


class QueuePause(models.Model):
    """A queue, or a type of job or workflow wherever it waits, of which nothing new starts. Claims read this table."""

    class Kind(models.TextChoices):
        """What is paused."""

        QUEUE = "queue", "queue"
        TYPE = "type", "job type or workflow"

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=16, choices=Kind)
    name = models.CharField(max_length=200)
    reason = models.TextField(default="", db_default="", blank=True)
    by = models.CharField(max_length=200, default="", db_default="", blank=True)
    since = models.DateTimeField(db_default=Now())
    until = models.DateTimeField(
        null=True, blank=True, help_text="goes on by itself then; null: until resumed"
    )

    class Meta:
        verbose_name = "pause"
        verbose_name_plural = "pauses"
        default_permissions = ("view",)
        permissions = [("pause_queue", "Can pause and resume queues and types")]
        constraints = [models.UniqueConstraint(fields=["kind", "name"], name="pgjobs_queuepause_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
