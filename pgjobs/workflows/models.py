"""The tables of workflows. Columns, constraints and indexes; no verbs."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.models.functions import Now

from pgjobs.leases.models import LeasedRow, claim_indexes, running_means_leased
from pgjobs.leases.states import LeaseRules
from pgjobs.workflows.states import TERMINAL, ExecutionStatus, OnTimeout, StepKind, WaitKind
from pgjobs.workflows.subject import SubjectKey
from pgjobs.workflows.values import ExecutionVerbs

_EMPTY_OBJECT = models.Value({}, models.JSONField())
_EMPTY_LIST = models.Value([], models.JSONField())


class Execution(LeasedRow):
    """One run of a workflow, from start to end, however many processes carry it."""

    LEASE: ClassVar[LeaseRules] = LeaseRules(
        label="execution",
        kind_column="workflow_name",
        claimable=ExecutionStatus.ENQUEUED.value,
        exhausted=ExecutionStatus.PAUSED.value,
        exhausted_reason_column="pause_reason",
        exhausted_is_final=False,
    )

    workflow_name = models.CharField(max_length=200)
    version = models.IntegerField(default=1, db_default=1)
    key = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001 - null is "none"
    status = models.CharField(
        max_length=16,
        choices=ExecutionStatus,
        default=ExecutionStatus.ENQUEUED,
        db_default=ExecutionStatus.ENQUEUED.value,
    )
    input = models.JSONField(default=dict, db_default=_EMPTY_OBJECT, blank=True)
    output = models.JSONField(null=True, blank=True)
    pause_reason = models.TextField(default="", db_default="", blank=True)
    note = models.TextField(
        default="", db_default="", blank=True, help_text="the latest verb, by whom and why"
    )
    updated_at = models.DateTimeField(db_default=Now())
    started_by = models.CharField(max_length=200, default="", db_default="", blank=True, help_text="user id")
    parent = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="children"
    )
    continued_from = models.OneToOneField(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="continued_as"
    )
    # Of a fork: the execution its history began with, whose draws it repeats, and when that was started.
    origin_id = models.BigIntegerField(null=True, blank=True)
    origin_at = models.DateTimeField(null=True, blank=True)
    # No constraint: content types stay where the project has them when the queue has a database of its own.
    subject_type = models.ForeignKey(
        ContentType, on_delete=models.DO_NOTHING, db_constraint=False, null=True, blank=True
    )
    subject_id = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001 - null is "none"
    subject = SubjectKey("subject_type", "subject_id")

    verbs: ClassVar[ExecutionVerbs]
    """What the methods below do. Set by the app when Django starts, since verbs stand above their tables."""
    input_differs: bool = False
    """On what ``start`` returned: the key was taken by an execution with another input."""
    archived: bool = False
    """On what ``start`` returned: the execution that has the key has ended and is in the archive, as this shows it."""

    class Meta:
        verbose_name = "workflow execution"
        verbose_name_plural = "workflows"
        permissions = [
            ("resume_execution", "Can pause, resume and retry workflow executions"),
            ("cancel_execution", "Can cancel workflow executions"),
            ("fork_execution", "Can fork workflow executions"),
            ("signal_execution", "Can send signals to workflow executions"),
        ]
        constraints = [
            running_means_leased("pgjobs_execution_lease"),
            models.CheckConstraint(
                condition=models.Q(status__in=ExecutionStatus.values), name="pgjobs_execution_status"
            ),
            models.CheckConstraint(
                condition=~models.Q(workflow_name="") & ~models.Q(key=""), name="pgjobs_execution_names"
            ),
            models.UniqueConstraint(
                fields=["workflow_name", "key"],
                condition=models.Q(key__isnull=False),
                name="pgjobs_execution_key",
            ),
        ]
        indexes = [
            *claim_indexes("pgjobs_execution", ExecutionStatus.ENQUEUED.value),
            *(
                models.Index(
                    fields=["created_at"],
                    name=f"pgjobs_execution_{status}",
                    condition=models.Q(status=status),
                )
                for status in (ExecutionStatus.WAITING.value, ExecutionStatus.PAUSED.value)
            ),
            models.Index(
                fields=["status", "completed_at"],
                name="pgjobs_execution_ends",
                condition=models.Q(status__in=sorted(status.value for status in TERMINAL)),
            ),
        ]

    def signal(self, name: str, payload: Any = None) -> None:
        """Send a signal in the caller's transaction: kept in the mailbox until a wait takes it, and taken once."""
        self.verbs.signal(self.pk, name, payload)

    def cancel(self, *, actor: Any, reason: str = "") -> bool:
        """Stop this execution and what it waits for; False when it had ended before."""
        return self.verbs.cancel(self.pk, actor=actor, reason=reason)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the output.

        Raises :class:`ExecutionFailed` when it ended otherwise, TimeoutError when it did not end in time.
        """
        return self.verbs.result(self.pk, timeout)


class StepOutput(models.Model):
    """What a step came to. Written once, never changed: a recorded step never runs again."""

    id = models.BigAutoField(primary_key=True)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, db_index=False, related_name="steps")
    step_id = models.CharField(max_length=300, help_text="name and occurrence, or name and key")
    kind = models.CharField(max_length=16, choices=StepKind)
    ordinal = models.IntegerField(help_text="position of the call; only detects divergence")
    arguments_hash = models.CharField(max_length=32, default="", db_default="", blank=True)
    output = models.JSONField(null=True, blank=True)
    output_bytes = models.IntegerField(default=0, db_default=0)
    error = models.JSONField(null=True, blank=True, help_text="when the step failed and the body went on")
    attempts = models.IntegerField(default=1, db_default=1)
    seconds = models.FloatField(default=0, db_default=0, help_text="how long the last attempt ran")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "step output"
        verbose_name_plural = "step outputs"
        constraints = [
            models.UniqueConstraint(fields=["execution", "step_id"], name="pgjobs_stepoutput_once"),
        ]

    def __str__(self) -> str:
        return f"{self.step_id} of execution {self.execution_id}"


class Wait(models.Model):
    """Something an execution waits for. Resolved once; kept while the execution lives, as its history."""

    id = models.BigAutoField(primary_key=True)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, db_index=False, related_name="waits")
    step_id = models.CharField(max_length=300)
    kind = models.CharField(max_length=16, choices=WaitKind)
    ordinal = models.IntegerField()
    arguments_hash = models.CharField(max_length=32, default="", db_default="", blank=True)
    name = models.CharField(
        max_length=200, default="", db_default="", blank=True, help_text="signal name or title"
    )
    group = models.CharField(
        max_length=300, default="", db_default="", blank=True, help_text="step id of a gather"
    )
    rule = models.JSONField(default=dict, db_default=_EMPTY_OBJECT, blank=True, help_text="of the gather")
    target_id = models.BigIntegerField(null=True, blank=True, help_text="job or child execution")
    created_at = models.DateTimeField(db_default=Now())
    wake_at = models.DateTimeField(null=True, blank=True, help_text="computed once, by the database")
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolution = models.JSONField(null=True, blank=True)
    # Approvals: who may decide, what was asked, and who did, when and why.
    permission = models.CharField(max_length=200, default="", db_default="", blank=True)
    groups = models.JSONField(default=list, db_default=_EMPTY_LIST, blank=True)
    users = models.JSONField(default=list, db_default=_EMPTY_LIST, blank=True)
    context = models.JSONField(null=True, blank=True, help_text="what the decider is shown")
    context_hash = models.CharField(max_length=64, default="", db_default="", blank=True)
    on_timeout = models.CharField(
        max_length=16,
        choices=OnTimeout,
        default=OnTimeout.REJECT,
        db_default=OnTimeout.REJECT.value,
        blank=True,
    )
    quorum = models.IntegerField(default=1, db_default=1)
    four_eyes = models.BooleanField(default=False, db_default=False)
    votes = models.JSONField(default=list, db_default=_EMPTY_LIST, blank=True)
    approved = models.BooleanField(null=True, blank=True)
    decided_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    bypassed = models.BooleanField(
        default=False,
        db_default=False,
        help_text="a superuser had a say in it who was not among those asked",
    )
    reason = models.TextField(default="", db_default="", blank=True)

    class Meta:
        # Of all waits, a page shows approvals alone.
        verbose_name = "approval"
        verbose_name_plural = "approvals"
        permissions = [("decide_wait", "Can decide approvals that name no permission of their own")]
        constraints = [
            models.UniqueConstraint(fields=["execution", "step_id"], name="pgjobs_wait_once"),
        ]
        indexes = [
            models.Index(
                fields=["wake_at", "id"],
                name="pgjobs_wait_due",
                condition=models.Q(resolved_at__isnull=True, wake_at__isnull=False),
            ),
            models.Index(
                fields=["target_id", "kind"],
                name="pgjobs_wait_target",
                condition=models.Q(resolved_at__isnull=True, target_id__isnull=False),
            ),
            models.Index(
                fields=["created_at"],
                name="pgjobs_wait_inbox",
                condition=models.Q(resolved_at__isnull=True, kind=WaitKind.APPROVAL.value),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.step_id} of execution {self.execution_id}"

    @property
    def starter_unknown(self) -> bool:
        """Four eyes are asked for, and nobody is recorded as the starter: whoever decides could be the same person."""
        return self.four_eyes and not self.execution.started_by


class Message(models.Model):
    """A signal in an execution's mailbox. Lives as long as the execution; taken by one wait."""

    id = models.BigAutoField(primary_key=True)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="messages")
    name = models.CharField(max_length=200)
    payload = models.JSONField(null=True, blank=True)
    sent_at = models.DateTimeField(db_default=Now())
    consumed_by = models.OneToOneField(
        Wait, on_delete=models.SET_NULL, null=True, blank=True, related_name="message"
    )

    class Meta:
        verbose_name = "message"
        verbose_name_plural = "messages"

    def __str__(self) -> str:
        return f"{self.name} to execution {self.execution_id}"


class ArchivedExecution(models.Model):
    """A finished execution with its steps, waits and messages, out of the way of the live tables."""

    id = models.BigIntegerField(primary_key=True)
    workflow_name = models.CharField(max_length=200)
    version = models.IntegerField()
    key = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001 - null is "none"
    status = models.CharField(max_length=16, choices=ExecutionStatus)
    created_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(db_default=Now())
    story = models.JSONField(help_text="the execution's row, its steps, waits and messages")

    class Meta:
        verbose_name = "archived execution"
        verbose_name_plural = "archived executions"
        indexes = [models.Index(fields=["workflow_name", "key"], name="pgjobs_archive_key")]

    def __str__(self) -> str:
        return f"execution {self.id} ({self.workflow_name})"
