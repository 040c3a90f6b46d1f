"""The abstract leased row. Columns only; every change of them is a verb of this room or of the room that inherits."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Now

from pgjobs.leases.states import RUNNING, LeaseRules


def running_means_leased(name: str) -> models.CheckConstraint:
    """running <=> owner, token and expiry are set; no other status has any of them."""
    held = models.Q(
        lease_owner__isnull=False, lease_token__isnull=False, lease_expires_at__isnull=False, status=RUNNING
    )
    free = models.Q(
        lease_owner__isnull=True, lease_token__isnull=True, lease_expires_at__isnull=True
    ) & ~models.Q(status=RUNNING)
    return models.CheckConstraint(condition=held | free, name=name)


def claim_indexes(prefix: str, claimable: str) -> list[models.Index]:
    """The partial indexes of the protocol.

    ``claim`` and ``suspect`` are in the order of the claim within one queue, and hold nothing but rows that can
    be claimed. ``running`` is on columns that a heartbeat does not change, so that renewals stay HOT.
    """
    return [
        models.Index(
            fields=["queue", "priority", "available_at", "id"],
            name=f"{prefix}_claim",
            condition=models.Q(status=claimable, crash_count=0),
        ),
        models.Index(
            fields=["priority", "available_at", "id"],
            name=f"{prefix}_suspect",
            condition=models.Q(status=claimable, crash_count__gt=0),
        ),
        models.Index(
            fields=["lease_owner", "id"], name=f"{prefix}_running", condition=models.Q(status=RUNNING)
        ),
    ]


class LeasedRow(models.Model):
    """A row that one worker at a time may work on, for as long as it renews its lease."""

    LEASE: ClassVar[LeaseRules]

    id = models.BigAutoField(primary_key=True)
    status = models.CharField(max_length=16)
    queue = models.CharField(max_length=100, default="default", db_default="default")
    priority = models.SmallIntegerField(default=100, db_default=100, help_text="smaller runs sooner")
    attempt_count = models.IntegerField(default=0, db_default=0, help_text="claims so far")
    crash_count = models.IntegerField(
        default=0, db_default=0, help_text="claims that ended with a dead worker"
    )
    max_crashes = models.IntegerField(default=3, db_default=3)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    available_at = models.DateTimeField(db_default=Now(), help_text="not claimed before")
    started_at = models.DateTimeField(null=True, blank=True, help_text="latest claim")
    completed_at = models.DateTimeField(null=True, blank=True)
    lease_owner = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null is "no lease"
    lease_token = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(default="", db_default="", blank=True)
    errors = models.JSONField(default=list, db_default=models.Value([], models.JSONField()), blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        kind: Any = getattr(self, self.LEASE.kind_column)
        return f"{self.LEASE.label} {self.pk} ({kind})"
