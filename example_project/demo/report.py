"""The end of the demo: each document's fate, the operator's questions, and whether anything is wrong."""

from django.db import connection

from example_project.demo.display import Display
from example_project.demo.questions import FAILED, LOST, Answer, ask
from example_project.demo.story import Story
from example_project.demo.tables import aligned
from example_project.documents.models import Document
from pgjobs.models import Job, JobResult
from pgjobs.queue.states import JobStatus

DOUBLED = """
    SELECT document_id, number FROM documents_page WHERE document_id = ANY(%s)
    GROUP BY document_id, number HAVING count(*) > 1
"""
"""Asked although a constraint forbids it: a report that trusts what it should show shows nothing."""


def print_report(story: Story, display: Display) -> None:
    display.text()
    display.text("Documents")
    columns = ["document", "state", "attempts", "pages", "finished_by", "remark"]
    rows = []
    for document in Document.objects.filter(pk__in=story.papers).select_related("job").order_by("pk"):
        job = document.job
        rows.append(
            [
                document.title,
                job.status if job else "no job",
                job.attempt_count if job else "",
                document.pages.count(),
                (job.completed_by if job else "") or "",
                _remark(job),
            ]
        )
    _table(display, columns, rows)
    display.text()
    display.text(f"Asked of the database when worker {story.killed_worker or '(none)'} had just been killed:")
    for answer in story.answers:
        _answer(display, answer)
    display.text()
    display.text("Asked of the database now:")
    for name in (FAILED, LOST):
        _answer(display, ask(name))


def problems(story: Story) -> list[str]:
    """Everything that went against the promise, in plain words; empty when the promise held."""
    found: list[str] = []
    documents = Document.objects.filter(pk__in=story.papers).select_related("job").in_bulk()
    for pk, paper in story.papers.items():
        document = documents.get(pk)
        if document is None or document.job is None:
            found.append(f"{paper.name}: the document or its job is gone.")
            continue
        found += [f"{paper.name}: {problem}" for problem in _of_document(document, document.job, paper.pages)]
    with connection.cursor() as cursor:
        cursor.execute(DOUBLED, [list(story.papers)])
        found += [f"Page {number} of document {pk} is stored twice." for pk, number in cursor.fetchall()]
    return found + _of_kill(story)


def _of_document(document: Document, job: Job, expected: int | None) -> list[str]:
    stored = document.pages.count()
    if job.status not in (JobStatus.SUCCEEDED, JobStatus.FAILED):
        error = job.last_error or "no error"
        return [f"lost: its job is {job.status} after {job.attempt_count} attempts ({error})."]
    found = []
    if job.status == JobStatus.SUCCEEDED:
        told = (job.result or {}).get("pages")
        if not stored == document.page_count == told:
            found.append(f"{stored} pages stored, {document.page_count} counted, {told} in the job's result.")
        if not JobResult.objects.filter(idempotency_key=job.idempotency_key).exists():
            found.append("succeeded, but its result is not recorded under its key.")
    else:
        if stored:
            found.append(f"failed, and yet {stored} pages are stored.")
        if job.attempt_count - job.crash_count != 1:
            found.append(f"unreadable, and yet it was tried {job.attempt_count} times.")
    if expected is not None and stored != expected:
        found.append(f"{expected} pages expected, {stored} stored.")
    return found


def _of_kill(story: Story) -> list[str]:
    """The kill must have met a job in mid-run, and that job must have been finished by somebody else."""
    if not story.killed_pid:
        return ["No worker was killed: no document ran long enough. Give longer ones with --documents."]
    lost = [
        job
        for job in Job.objects.filter(pk__in=story.jobs_at_kill)
        if any(e.get("kind") == "lost" and e.get("worker") == story.killed_worker for e in job.errors)
    ]
    if not lost:
        return [f"The kill of {story.killed_worker} met no running job: nothing is recorded as lost."]
    found = []
    for job in lost:
        finished_by_another = job.completed_by not in (None, "", story.killed_worker)
        if job.status != JobStatus.SUCCEEDED or job.attempt_count < 2 or not finished_by_another:
            found.append(
                f"Job {job.pk} was lost with {story.killed_worker} and is {job.status} at attempt "
                f"{job.attempt_count}, finished by {job.completed_by or 'nobody'}."
            )
    return found


def _remark(job: Job | None) -> str:
    if job is None:
        return ""
    if job.status != JobStatus.SUCCEEDED:
        return job.last_error.partition("\n")[0]
    note = (job.result or {}).get("note") or job.note or ""
    return f"finished after its worker was lost. {note}".strip() if job.crash_count else note


def _answer(display: Display, answer: Answer) -> None:
    display.text()
    display.text(f"  {answer.question}")
    if answer.rows:
        _table(display, answer.columns, answer.rows)
    else:
        display.text("    nothing")


def _table(display: Display, columns: list[str], rows: list) -> None:  # type: ignore[type-arg]
    for line in aligned(columns, rows):
        display.text(f"    {line}")
