"""An incident and what its workflow leaves behind. Each one-to-one and unique column is an effect that lands once."""

from django.db import models
from django.urls import reverse

from example_project.documents.models import Document


class Incident(models.Model):
    """A failure that GitHub told us of."""

    delivery = models.CharField(max_length=100, unique=True, help_text="GitHub's id of the delivery.")
    kind = models.CharField(max_length=40, help_text="The delivery's event, such as check_run.")
    repository = models.CharField(max_length=200)
    title = models.CharField(max_length=300)
    outcome = models.CharField(max_length=40, help_text="In GitHub's word, such as timed_out.")
    commit = models.CharField(max_length=64, blank=True, help_text="The commit that failed.")
    payload = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)
    documents = models.ManyToManyField(Document, blank=True, help_text="Runbooks to be read for it.")
    # Incidents outlive executions, which are archived after a time: no constraint, no cascade. An id whose row is
    # gone means "long ago".
    execution = models.ForeignKey(
        "pgjobs.Execution",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        blank=True,
        related_name="+",
    )

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.title

    def get_absolute_url(self) -> str:
        return reverse("incidents:detail", args=[self.pk])


class Finding(models.Model):
    """The root cause."""

    incident = models.OneToOneField(Incident, on_delete=models.CASCADE)
    cause = models.CharField(max_length=40)
    summary = models.TextField()
    found_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.summary


class Fix(models.Model):
    """A patch that somebody may approve."""

    incident = models.OneToOneField(Incident, on_delete=models.CASCADE)
    summary = models.TextField()
    patch = models.TextField(help_text="A unified diff against main.")
    written_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "fixes"
        permissions = [("approve_fix", "Can approve or reject a fix")]

    def __str__(self) -> str:
        return self.summary


class Change(models.Model):
    """A fix that was approved: the entry in the book of changes, written before the repository is touched."""

    fix = models.OneToOneField(Fix, on_delete=models.CASCADE)
    approved_by = models.CharField(max_length=200, help_text="User name; empty when time decided.")
    approved_at = models.DateTimeField(null=True)
    reason = models.TextField(blank=True)
    recorded_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.fix} (approved by {self.approved_by})"


class PullRequest(models.Model):
    """A branch with the fix, ready to be merged."""

    change = models.OneToOneField(Change, on_delete=models.CASCADE)
    branch = models.CharField(max_length=200)
    commit = models.CharField(max_length=64)
    opened_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.branch


class StepStart(models.Model):
    """A step has begun. Written first of all, so a step that was killed has one more of these than records."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="step_starts")
    step = models.CharField(max_length=100)
    pid = models.IntegerField(help_text="Process id of the worker.")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.step} in process {self.pid}"
