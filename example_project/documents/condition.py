"""What a person is told about a document, from its job's row. Reads states, never sets one."""

from dataclasses import dataclass
from typing import Any

from example_project.documents.models import Document
from pgjobs.models import Job
from pgjobs.queue.states import JobStatus

WORDS = {
    JobStatus.PENDING: "waiting",
    JobStatus.RUNNING: "reading",
    JobStatus.SUCCEEDED: "done",
    JobStatus.FAILED: "failed",
    JobStatus.DEAD: "gave up",
    JobStatus.CANCELLED: "cancelled",
}


@dataclass(frozen=True)
class Condition:
    """One document's state in words; ``done`` and ``total`` are pages, ``total`` None while unknown."""

    word: str
    status: str
    finished: bool
    reason: str = ""
    done: int = 0
    total: int | None = None
    attempts: int = 0


def condition_of(document: Document) -> Condition:
    """The state of ``document``, whose ``job`` should have been fetched with it (``select_related``)."""
    job = document.job
    if job is None:
        read = document.page_count is not None
        return Condition(
            word="done" if read else "no job",
            status=JobStatus.SUCCEEDED if read else JobStatus.CANCELLED,
            finished=True,
            reason="" if read else "Its job is gone and its pages were never read. Upload it again.",
            done=document.page_count or 0,
            total=document.page_count,
        )
    status = JobStatus(job.status)
    progress = job.progress or {}
    return Condition(
        word=WORDS[status],
        status=status,
        finished=status not in (JobStatus.PENDING, JobStatus.RUNNING),
        reason=_reason(job, status, progress),
        done=document.page_count or progress.get("done", 0),
        total=document.page_count or progress.get("total"),
        attempts=job.attempt_count,
    )


def _reason(job: Job, status: JobStatus, progress: dict[str, Any]) -> str:
    """Why the document is where it is, in one line."""
    trouble = job.last_error.strip().splitlines()[0] if (job.last_error or "").strip() else ""
    if status == JobStatus.SUCCEEDED:
        note = (job.result or {}).get("note", "") if isinstance(job.result, dict) else ""
        return note or job.note or ""
    if status == JobStatus.RUNNING:
        return str(progress.get("note", ""))
    if status == JobStatus.PENDING and job.attempt_count:
        return f"Will be tried again: {trouble}" if trouble else "Will be tried again."
    return trouble
