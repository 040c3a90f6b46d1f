"""The effect log: what the handlers of the tests did, one row per deed."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now


class Effect(models.Model):
    """Has no unique constraint on purpose: a deed done twice must show as two rows."""

    key = models.TextField()
    job_id = models.BigIntegerField(null=True)
    attempt = models.IntegerField(null=True)
    pid = models.IntegerField()
    worker = models.TextField(default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return f"{self.key} by job {self.job_id}, attempt {self.attempt}, process {self.pid}"
