"""The job of this app: read a document's pages."""

import time
from datetime import timedelta
from typing import Any

from example_project.documents import conf
from example_project.documents.models import Document, Page
from example_project.documents.reader import PDF, UnreadablePDF
from pgjobs import Fail, Snooze, job


@job(queue="documents", max_attempts=5, timeout=300, takes_context=True)
def extract(ctx: Any, document_id: int) -> None:
    """Read every page with no transaction open, then store all of them together with the job's success."""
    try:
        document = Document.objects.get(pk=document_id)
        pages = _read(ctx, document)
    except Document.DoesNotExist:
        raise Fail(f"Document {document_id} does not exist; it was deleted after the job was made.") from None
    except UnreadablePDF as error:
        # The bytes will be the same next time: no retry can help.
        raise Fail(str(error)) from error
    characters = sum(page.chars for page in pages)
    result: dict[str, Any] = {"pages": len(pages), "characters": characters}
    if not characters:
        result["note"] = "No text: the pages are pictures."
    with ctx.finish(result):
        # A job made by hand has no idempotency key; the unique pair still keeps each page once.
        Page.objects.bulk_create(pages, ignore_conflicts=True)
        Document.objects.filter(pk=document_id).update(page_count=len(pages))


def idempotency_key(document: Document) -> str:
    """Names the effect: the pages of this document as it was uploaded.

    Not the checksum alone: two documents with the same bytes each need their own page rows, and the second
    would be told "result already existed" and stay without. Not the id alone: a changed file is new work.
    """
    return f"documents.extract:{document.pk}:{document.sha256}"


def _read(ctx: Any, document: Document) -> list[Page]:
    pdf = PDF(_stored_bytes(document))
    pages = []
    ctx.progress(0, pdf.page_count, "opened")
    for number in range(1, pdf.page_count + 1):
        if ctx.should_stop:
            raise Snooze(timedelta(0), "the worker is stopping; nothing was stored yet")
        time.sleep(conf.page_delay())
        text = pdf.text(number)
        pages.append(Page(document=document, number=number, text=text, chars=len(text)))
        ctx.progress(number, pdf.page_count, f"page {number} of {pdf.page_count}")
    return pages


def _stored_bytes(document: Document) -> bytes:
    """The file, whole. Raises OSError when the storage has trouble, which is worth a retry."""
    try:
        with document.file.open("rb") as file:
            return bytes(file.read())
    except FileNotFoundError:
        raise Fail(
            "The stored file is missing. Upload it again; if it is on another machine, let the workers share "
            "the web server's MEDIA_ROOT and retry the job."
        ) from None
