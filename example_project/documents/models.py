"""A document as uploaded, and what was read from it."""

import uuid

from django.db import models
from django.urls import reverse


def random_name(document: "Document", filename: str) -> str:
    """Where the file is stored: nothing of the client's name reaches the disk."""
    return f"documents/{uuid.uuid4().hex}.pdf"


class Document(models.Model):
    """One uploaded PDF. Its file never changes; a new version is a new document."""

    title = models.CharField(max_length=200)
    file = models.FileField(upload_to=random_name)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveBigIntegerField(help_text="Bytes.")
    uploaded_at = models.DateTimeField(auto_now_add=True)
    page_count = models.PositiveIntegerField(null=True, blank=True, help_text="Known once it has been read.")
    # Documents outlive jobs: deleting old jobs in bulk must be neither refused nor slowed down by them.
    # So there is no constraint and no cascade; an id whose row is gone only means "long ago".
    job = models.ForeignKey(
        "pgjobs.Job",
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
        return reverse("documents:detail", args=[self.pk])


class Page(models.Model):
    """The text of one page. The unique pair is the effect that must land once, whatever workers do."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="pages")
    number = models.PositiveIntegerField(help_text="Counted from 1.")
    text = models.TextField(blank=True)
    chars = models.PositiveIntegerField()

    class Meta:
        ordering = ["document_id", "number"]
        constraints = [models.UniqueConstraint(fields=["document", "number"], name="documents_page_once")]

    def __str__(self) -> str:
        return f"{self.document_id}/{self.number}"
