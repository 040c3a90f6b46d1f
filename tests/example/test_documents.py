"""The example app's pages: uploads become documents and jobs together, and the list says how they fare."""

from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse

from example_project.demo.paper import write_pdf
from example_project.documents import intake, jobs
from example_project.documents.models import Document, Page
from pgjobs.models import Job
from pgjobs.queue.states import JobStatus

pytestmark = pytest.mark.usefixtures("media_root")


def upload(name: str = "a.pdf", content: bytes = b"%PDF-1.4", **more: Any) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content, content_type="application/pdf", **more)


def stored_files(media_root: Path) -> list[Path]:
    return [path for path in media_root.rglob("*") if path.is_file()]


def document_with(**columns: Any) -> Document:
    """A document whose job row looks like this, as the workers would have left it."""
    job = Job.objects.create(job_type="documents.extract", **columns)
    return Document.objects.create(title="paper.pdf", sha256="0" * 64, size=10, job=job)


@pytest.mark.django_db
def test_several_files_become_documents_with_jobs(client: Client, media_root: Path) -> None:
    first, second = write_pdf("One", 1), write_pdf("Two", 2)
    response = client.post(
        reverse("documents:upload"), {"pdfs": [upload("one.pdf", first), upload("two.pdf", second)]}
    )
    assert (response.status_code, response["Location"]) == (302, reverse("documents:list"))
    one, two = Document.objects.order_by("pk")
    assert (one.title, two.title) == ("one.pdf", "two.pdf")
    assert (one.size, two.size) == (len(first), len(second))
    assert one.file.read() == first and two.file.read() == second
    one.file.close(), two.file.close()
    assert one.job.job_type == "documents.extract" and one.job.queue == "documents"
    assert [one.job.payload, two.job.payload] == [{"document_id": one.pk}, {"document_id": two.pk}]
    assert {one.job.status, two.job.status} == {JobStatus.PENDING}
    assert not any("one" in path.name or "two" in path.name for path in stored_files(media_root))


@pytest.mark.django_db
def test_the_same_file_twice_is_two_pieces_of_work() -> None:
    one, two = intake.receive([upload("a.pdf"), upload("b.pdf")])
    assert one.sha256 == two.sha256
    assert one.job.idempotency_key != two.job.idempotency_key


@pytest.mark.django_db(transaction=True)
def test_document_and_job_commit_together(client: Client) -> None:
    """Every statement of the upload runs in one transaction: its rows carry one transaction id."""
    client.post(reverse("documents:upload"), {"pdfs": [upload("a.pdf"), upload("b.pdf")]})
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text FROM documents_document UNION SELECT xmin::text FROM pgjobs_job")
        assert len(cursor.fetchall()) == 1
    assert Document.objects.filter(job__isnull=False).count() == Job.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_an_upload_that_fails_halfway_leaves_nothing(client: Client, media_root: Path) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE documents_document ADD CONSTRAINT refuse_second CHECK (title <> 'second.pdf')"
        )
    try:
        with pytest.raises(DatabaseError, match="refuse_second"):
            client.post(reverse("documents:upload"), {"pdfs": [upload("first.pdf"), upload("second.pdf")]})
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE documents_document DROP CONSTRAINT refuse_second")
    assert (Document.objects.count(), Job.objects.count(), stored_files(media_root)) == (0, 0, [])


@pytest.mark.django_db(transaction=True)
def test_a_surrounding_rollback_takes_documents_and_jobs_with_it() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        intake.receive([upload("a.pdf")])
        raise ZeroDivisionError
    assert (Document.objects.count(), Job.objects.count()) == (0, 0)


@pytest.mark.django_db
def test_a_file_above_the_cap_is_named_and_nothing_is_taken(
    client: Client, media_root: Path, settings: Any
) -> None:
    settings.DOCUMENTS_MAX_BYTES = 1000
    files = [upload("small.pdf"), upload("large.pdf", b"x" * 1001)]
    response = client.post(reverse("documents:upload"), {"pdfs": files})
    text = response.content.decode()
    assert response.status_code == 200
    assert "large.pdf has 1001" in text and "the limit is 1000" in text and "small.pdf" not in text
    assert (Document.objects.count(), Job.objects.count(), stored_files(media_root)) == (0, 0, [])


@pytest.mark.django_db
def test_a_file_of_exactly_the_cap_is_taken(client: Client, settings: Any) -> None:
    settings.DOCUMENTS_MAX_BYTES = 1000
    client.post(reverse("documents:upload"), {"pdfs": upload("just.pdf", b"x" * 1000)})
    assert Document.objects.get().size == 1000


@pytest.mark.django_db
def test_an_upload_without_files_says_so(client: Client) -> None:
    response = client.post(reverse("documents:upload"), {})
    assert "Choose at least one PDF." in response.content.decode()


@pytest.mark.django_db
def test_an_empty_file_is_taken_so_that_its_job_can_say_so(client: Client) -> None:
    client.post(reverse("documents:upload"), {"pdfs": upload("empty.pdf", b"")})
    assert Document.objects.get().job.status == JobStatus.PENDING


@pytest.mark.django_db
def test_uploads_need_the_csrf_token() -> None:
    response = Client(enforce_csrf_checks=True).post(reverse("documents:upload"), {"pdfs": upload()})
    assert (response.status_code, Document.objects.count()) == (403, 0)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("C:\\Users\\me\\lease.pdf", "lease.pdf"),
        ("../../etc/passwd", "passwd"),
        ("two\nlines\x00.pdf", "twolines.pdf"),
        ("فاتورة.pdf", "فاتورة.pdf"),
        ("gpj.\u202efdp.exe", "gpj.fdp.exe"),
        ("x" * 300 + ".pdf", "x" * 200),
        (" \t ", "untitled"),
    ],
)
def test_the_title_is_one_plain_line(name: str, title: str) -> None:
    assert intake._title(name) == title


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"status": "pending"}, ["waiting"]),
        (
            {"status": "pending", "attempt_count": 1, "last_error": "OSError: disk"},
            ["waiting", "Will be tried again: OSError: disk"],
        ),
        (
            {"status": "succeeded", "progress": {"done": 2, "total": 2, "note": ""}},
            ["done", '<progress value="2" max="2"', "2 of 2"],
        ),
        ({"status": "succeeded", "result": {"note": "No text: the pages are pictures."}}, ["are pictures"]),
        (
            {"status": "failed", "last_error": "The file is empty.\nTraceback"},
            ["failed", "The file is empty."],
        ),
        ({"status": "dead", "last_error": "worker lost 3 times"}, ["gave up", "worker lost 3 times"]),
        ({"status": "cancelled"}, ["cancelled"]),
    ],
    ids=["waiting", "retrying", "done", "pictures", "failed", "dead", "cancelled"],
)
def test_the_list_says_how_a_document_fares(
    client: Client, columns: dict[str, Any], expected: list[str]
) -> None:
    document_with(**columns)
    text = client.get(reverse("documents:list")).content.decode()
    assert [part for part in expected if part not in text] == []
    assert "Traceback" not in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "refreshes"),
    [("pending", True), ("succeeded", False), ("failed", False), ("dead", False), ("cancelled", False)],
)
def test_the_pages_reload_only_while_something_is_unfinished(
    client: Client, status: str, refreshes: bool
) -> None:
    document = document_with(status=status)
    for address in (reverse("documents:list"), document.get_absolute_url()):
        assert ('http-equiv="refresh"' in client.get(address).content.decode()) is refreshes


@pytest.mark.django_db
def test_the_list_costs_the_same_for_one_document_and_for_thirty(
    client: Client, django_assert_num_queries: Any
) -> None:
    address = reverse("documents:list")
    document_with(status="failed", last_error="no")
    with django_assert_num_queries(2):  # the count of the pages, and the rows with their jobs
        client.get(address)
    for _ in range(29):
        document_with(status="failed", last_error="no")
    with django_assert_num_queries(2):
        assert client.get(address).content.decode().count("<tr>") == 31


@pytest.mark.django_db
def test_hostile_titles_and_texts_are_escaped(client: Client) -> None:
    document = document_with(status="succeeded")
    Document.objects.filter(pk=document.pk).update(title="<script>alert(1)</script>.pdf", page_count=1)
    Page.objects.create(document=document, number=1, text="<img src=x onerror=alert(1)>", chars=10)
    for address in (reverse("documents:list"), document.get_absolute_url()):
        text = client.get(address).content.decode()
        assert "<script" not in text and "<img" not in text


@pytest.mark.django_db
def test_a_document_shows_its_pages_ten_at_a_time(client: Client) -> None:
    document = document_with(status="succeeded")
    Page.objects.bulk_create(
        Page(document=document, number=n, text=f"text {n}.", chars=1) for n in range(1, 13)
    )
    address = document.get_absolute_url()
    first, second = (client.get(address, {"page": n}).content.decode() for n in (1, 2))
    assert "text 10." in first and "text 11." not in first
    assert "text 11." in second and "text 10." not in second


@pytest.mark.django_db
def test_an_unknown_document_is_not_found(client: Client) -> None:
    assert client.get(reverse("documents:detail", args=[404])).status_code == 404


@pytest.mark.django_db
def test_a_document_outlives_its_job(client: Client) -> None:
    """Old jobs are deleted in bulk; documents neither forbid that nor break by it."""
    read, unread = document_with(status="succeeded"), document_with(status="failed")
    Document.objects.filter(pk=read.pk).update(page_count=3)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_job")
    text = client.get(reverse("documents:list")).content.decode()
    assert "3 of 3" in text and "Its job is gone" in text
    assert client.get(unread.get_absolute_url()).status_code == 200


@pytest.mark.django_db
def test_the_key_names_document_and_content() -> None:
    document = document_with()
    before = jobs.idempotency_key(document)
    document.sha256 = "1" * 64
    assert before != jobs.idempotency_key(document)
