"""The table of causes that a person has acknowledged or muted. No verbs."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Acknowledgement(models.Model):
    """One fingerprint of failures that somebody knows about. What was before stands in the audit."""

    fingerprint = models.CharField(max_length=40, primary_key=True)
    by = models.CharField(max_length=200, default="", db_default="", blank=True)
    since = models.DateTimeField(db_default=Now())
    until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="muted until then, whatever happens; null: acknowledged until it happens on another version",
    )
    note = models.TextField(default="", db_default="", blank=True)
    link = models.CharField(max_length=500, default="", db_default="", blank=True, help_text="of the ticket")
    versions = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        blank=True,
        help_text="versions of the code that workers had then",
    )

    class Meta:
        verbose_name = "acknowledged error"
        verbose_name_plural = "acknowledged errors"
        default_permissions = ()  # who may see jobs may see these
        permissions = [("acknowledge_error", "Can acknowledge and mute errors")]

    def __str__(self) -> str:
        return self.fingerprint
