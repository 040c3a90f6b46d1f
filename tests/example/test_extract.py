"""Documents read by real workers: what lands, what fails at once, and what a second run does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.db import connection

from example_project.demo.paper import write_pdf, write_picture_pdf
from example_project.documents.intake import receive
from example_project.documents.jobs import extract
from example_project.documents.models import Document, Page
from pgjobs.models import Job, JobResult
from pgjobs.queue.states import TERMINAL, JobStatus
from tests.support.waiting import wait_until
from tests.support.workers import Spawner

REAL_PDFS = Path(__file__).resolve().parents[3] / "shared" / "data" / "pdf"
# What is known of the real ones: number of pages, or a word of the reason why they cannot be read.
REAL_OUTCOMES: dict[str, int | str] = {
    "002-trivial-libre-office-writer.pdf": 1,
    "crazyones-pdfa.pdf": 1,
    "google-doc-document.pdf": 1,
    "habibi.pdf": 1,
    "imagemagick-images.pdf": 6,
    "libre-office-link.pdf": 1,
    "libreoffice-form.pdf": 1,
    "minimal-document.pdf": 1,
    "mistitled_outlines_example.pdf": 4,
    "pdflatex-4-pages.pdf": 4,
    "pdflatex-image.pdf": 1,
    "libreoffice-writer-password.pdf": "password",
    "empty.pdf": "empty",
    "not-a-pdf.pdf": "not a PDF",
    "truncated.pdf": "damaged or cut off",
}

pytestmark = [pytest.mark.workers, pytest.mark.usefixtures("media_root")]


@pytest.fixture
def drain(spawn_workers: Spawner) -> Callable[[], None]:
    """Runs workers until nothing is left to run."""

    def run() -> None:
        assert spawn_workers("--drain", wait=False).wait(60) == 0
        assert not Job.objects.exclude(status__in=TERMINAL).exists()

    return run


def take(*contents: bytes) -> list[Document]:
    return receive([ContentFile(content, name=f"{n}.pdf") for n, content in enumerate(contents)])


def job_of(document: Document) -> Job:
    return Job.objects.get(pk=document.job_id)


def test_pages_land_with_the_success(drain: Callable[[], None]) -> None:
    (document,) = take(write_pdf("Lease of the premises", 3))
    drain()
    document.refresh_from_db()
    job = job_of(document)
    pages = list(document.pages.all())
    assert [page.number for page in pages] == [1, 2, 3] and document.page_count == 3
    assert "Lease of the premises (page 2 of 3)" in pages[1].text
    assert [page.chars for page in pages] == [len(page.text) for page in pages]
    assert (job.status, job.attempt_count) == (JobStatus.SUCCEEDED, 1)
    assert job.result == {"pages": 3, "characters": sum(page.chars for page in pages)}
    recorded = JobResult.objects.get(idempotency_key=job.idempotency_key)
    assert (recorded.job_id, recorded.produced_by) == (job.pk, job.completed_by)


def test_pictures_succeed_with_a_note(drain: Callable[[], None]) -> None:
    (document,) = take(write_picture_pdf(2))
    drain()
    job = job_of(document)
    assert (job.status, job.result["characters"]) == (JobStatus.SUCCEEDED, 0)
    assert "pictures" in job.result["note"]
    assert document.pages.count() == 2


def test_what_can_never_be_read_fails_at_the_first_attempt(drain: Callable[[], None]) -> None:
    reasons = {
        "is empty": b"",
        "not a PDF": b"Date,Amount\n",
        "damaged or cut off": write_pdf("Torn", 3)[:1500],
        "password": write_pdf("Secret", 1, password="not told"),
    }
    documents = take(*reasons.values())
    missing, deleted = take(write_pdf("Gone", 1), write_pdf("Deleted", 1))
    missing.file.storage.delete(missing.file.name)
    Document.objects.filter(pk=deleted.pk).delete()
    drain()
    expected = [*zip(documents, reasons, strict=True), (missing, "missing"), (deleted, "deleted")]
    for document, reason in expected:
        job = job_of(document)
        assert (job.status, job.attempt_count) == (JobStatus.FAILED, 1), reason
        assert reason in job.last_error
        assert len(job.errors) == 1 and job.errors[0]["kind"] == "fail"
    assert not Page.objects.exists() and not JobResult.objects.exists()


def test_a_storage_in_trouble_is_tried_again(drain: Callable[[], None]) -> None:
    """A directory in place of the file: an OSError that is not "missing", and so not the document's fault."""
    (document,) = take(write_pdf("Later", 1))
    path = Path(document.file.path)
    path.unlink()
    path.mkdir()
    Job.objects.filter(pk=document.job_id).update(max_attempts=1)
    drain()
    job = job_of(document)
    assert (job.status, job.errors[0]["type"]) == (JobStatus.DEAD, "IsADirectoryError")


def test_a_second_job_for_a_document_adds_nothing(drain: Callable[[], None]) -> None:
    (document,) = take(write_pdf("Once", 2))
    drain()
    again = extract.using(idempotency_key=job_of(document).idempotency_key).enqueue(document_id=document.pk)
    with connection.cursor() as cursor:  # any program may make one, without a key
        cursor.execute(
            "INSERT INTO pgjobs_job (job_type, payload) "
            "VALUES ('documents.extract', jsonb_build_object('document_id', %s::bigint)) RETURNING id",
            [document.pk],
        )
        (by_hand,) = cursor.fetchone()
    drain()
    first, second = job_of(document), Job.objects.get(pk=again.pk)
    assert (second.status, second.result) == (JobStatus.SUCCEEDED, first.result)
    assert "already existed" in second.note
    assert Job.objects.get(pk=by_hand).status == JobStatus.SUCCEEDED
    assert document.pages.count() == 2
    assert JobResult.objects.get().job_id == first.pk


def test_an_orderly_stop_costs_no_attempt(spawn_workers: Spawner, drain: Callable[[], None]) -> None:
    """SIGTERM between two pages: the job goes back at once and starts anew with the next worker."""
    (document,) = take(write_pdf("Long", 30))
    workers = spawn_workers("--grace-seconds", "20", env={"DOCUMENTS_PAGE_DELAY": "0.3"})
    wait_until(lambda: (job_of(document).progress or {}).get("done", 0) >= 1, message="the first page")
    workers.process.terminate()
    assert workers.wait(20) == 0
    job = job_of(document)
    assert (job.status, job.attempt_count) == (JobStatus.PENDING, 0)
    drain()
    assert document.pages.count() == 30
    assert (job_of(document).status, job_of(document).attempt_count) == (JobStatus.SUCCEEDED, 1)


@pytest.mark.skipif(not REAL_PDFS.is_dir(), reason=f"no folder {REAL_PDFS}: the real documents are not here")
def test_real_documents(drain: Callable[[], None]) -> None:
    paths = sorted(REAL_PDFS.glob("*.pdf"))
    documents = receive([ContentFile(path.read_bytes(), name=path.name) for path in paths])
    drain()
    assert {path.name for path in paths} >= REAL_OUTCOMES.keys()
    for document in documents:
        document.refresh_from_db()
        job = job_of(document)
        assert job.status in (JobStatus.SUCCEEDED, JobStatus.FAILED), (document.title, job.last_error)
        assert job.attempt_count == 1
        assert document.pages.count() == (document.page_count or 0)
        expected = REAL_OUTCOMES.get(document.title)
        if isinstance(expected, int):
            assert (job.status, document.page_count) == (JobStatus.SUCCEEDED, expected), job.last_error
        elif expected is not None:
            assert job.status == JobStatus.FAILED and expected in job.last_error
    arabic = Page.objects.get(document__title="habibi.pdf")
    assert any("\u0600" <= character <= "\u06ff" for character in arabic.text)
