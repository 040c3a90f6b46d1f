"""How files become documents: rows and jobs in one transaction."""

import hashlib
from collections.abc import Iterable

from django.core.files import File
from django.db import transaction

from example_project.documents.jobs import extract, idempotency_key
from example_project.documents.models import Document


def receive(files: Iterable[File]) -> list[Document]:
    """Store the files and enqueue one job for each: all of them, or none.

    A worker can see a job only once this transaction has committed, so it always finds the document and its
    file. When it does not commit, the files written so far are removed again.
    """
    documents: list[Document] = []
    try:
        with transaction.atomic():
            for file in files:
                document = Document(title=_title(file.name or ""), sha256=_sha256(file), size=file.size)
                documents.append(document)
                document.file.save(document.title, file, save=False)
                document.save()
                keyed = extract.using(idempotency_key=idempotency_key(document))
                document.job = keyed.enqueue(document_id=document.pk)
                document.save(update_fields=["job"])
    except BaseException:
        for document in documents:
            if document.file:
                document.file.storage.delete(document.file.name)
        raise
    return documents


def _title(name: str) -> str:
    """The client's file name as something to show: one line, no path, no invisible characters."""
    shown = "".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable()).strip()
    return shown[:200] or "untitled"


def _sha256(file: File) -> str:
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    file.seek(0)
    return digest.hexdigest()
