"""What the page of a job shows of its row, without its secrets."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.html import format_html

from pgjobs import redaction
from pgjobs.admin import attempts, marks
from pgjobs.admin.ages import in_words, lease_in_words, moment
from pgjobs.admin.tree import tree
from pgjobs.conf import get_settings
from pgjobs.queue.states import TERMINAL, JobStatus
from pgjobs.workflows.models import Wait
from pgjobs.workflows.states import WaitKind


def header(job: Any) -> dict[str, Any]:
    """Where it stands and since when."""
    return {
        "id": str(job.pk),
        "state": marks.state(job.status),
        "since": _since(job),
        "note": text(job, job.note),
        "job_type": job.job_type,
        "terminal": job.status in TERMINAL,
        "pending": job.status == JobStatus.PENDING,
    }


def text(job: Any, said: str) -> str:
    """Without the secrets that the payload names."""
    return redaction.redacted_text(said, payload=job.payload, job_type=job.job_type)


def _since(job: Any) -> Any:
    if job.status == JobStatus.PENDING:
        due = job.available_at <= job.clock
        return format_html("{} {}", "due since" if due else "runs at", moment(job.available_at, job.clock))
    at = job.started_at if job.status == JobStatus.RUNNING else job.completed_at
    return format_html("since {}", moment(at, job.clock)) if at else ""


def facts(job: Any) -> list[tuple[str, Any]]:
    """Names and values, those without a value left out."""
    crashes = f"{job.crash_count} of {job.max_crashes}" if job.crash_count else ""
    pairs = [
        ("Job type", job.job_type),
        ("Queue", job.queue),
        ("Priority", str(job.priority)),
        ("Attempts", f"{job.attempt_count} of {job.max_attempts}"),
        ("Crashes", crashes),
        ("Progress", progress(job)),
        ("Idempotency key", job.idempotency_key),
        ("Enqueued", moment(job.created_at, job.clock)),
        ("Not before", moment(job.available_at, job.clock)),
        ("Latest claim", moment(job.started_at, job.clock)),
        ("Ended", moment(job.completed_at, job.clock)),
        ("Ended by", job.completed_by),
        ("Archived", moment(getattr(job, "archived_at", None), job.clock)),
    ]
    return [(name, value) for name, value in pairs if value not in (None, "", "-")]


def lease(job: Any) -> list[tuple[str, Any]]:
    """Who holds it, for how long still; nothing when nobody does."""
    if job.status != JobStatus.RUNNING:
        return []
    return [
        ("Held by", job.lease_owner),
        ("Lease", lease_in_words(job.lease_expires_at - job.clock)),
        ("Heartbeat", f"{in_words(job.clock - job.heartbeat_at)} ago" if job.heartbeat_at else "none yet"),
        ("Running for", in_words(job.clock - job.started_at) if job.started_at else "-"),
    ]


def progress(job: Any) -> str:
    """As the handler reported it."""
    if not isinstance(job.progress, dict):
        return "-"
    total = job.progress.get("total")
    done = f"{job.progress.get('done')}" + (f" of {total}" if total is not None else "")
    return f"{done} {job.progress.get('note') or ''}".strip()


def values(job: Any, *, revealed: bool) -> dict[str, Any]:
    """Payload and result as trees, and the history of errors."""
    job_type, payload = job.job_type, job.payload
    shown = job.payload if revealed else redaction.redacted(payload, job_type=job_type)
    result = job.result if revealed else redaction.redacted(job.result, job_type=job_type)
    errors = redaction.redacted_texts(job.errors, payload=payload, job_type=job_type)
    last = redaction.redacted_text(job.last_error, payload=payload, job_type=job_type)
    return {
        "payload": tree(shown),
        "result": None if job.result is None else tree(result),
        "attempts": attempts.of(errors, job.clock),
        "last_error": last,
        "has_secrets": shown != payload or result != job.result,
        "revealed": revealed,
    }


def timeline(job: Any) -> list[tuple[str, Any]]:
    """Its way through the states, with the time between."""
    steps: list[tuple[str, Any]] = [("enqueued", moment(job.created_at, job.clock))]
    history = job.errors if isinstance(job.errors, list) else []
    for entry in history[-10:]:
        if isinstance(entry, dict):
            told = f"attempt {entry.get('attempt', '?')}: {entry.get('kind', 'error')}"
            steps.append((told, attempts.instant(entry.get("at"), job.clock)))
    if job.completed_at:
        took = in_words(job.completed_at - job.created_at)
        steps.append((f"{job.status}, {took} after it was enqueued", moment(job.completed_at, job.clock)))
    return steps


def relations(job: Any, site: Any) -> list[tuple[str, Any]]:
    """What else it belongs to."""
    found: list[tuple[str, Any]] = []
    for name, pk in (("Edited copy of", job.copied_from), ("Superseded by", job.superseded_by)):
        if pk is not None:
            url = reverse("admin:pgjobs_job_change", args=[pk], current_app=site.name)
            found.append((name, marks.link(url, f"job {pk}")))
    waits = Wait._base_manager.using(get_settings().database)
    for wait in waits.filter(target_id=job.pk, kind=WaitKind.JOB.value, resolved_at__isnull=True)[:5]:
        url = reverse("admin:pgjobs_execution_change", args=[wait.execution_id], current_app=site.name)
        found.append(("Awaited by", marks.link(url, f"workflow {wait.execution_id}, step {wait.step_id}")))
    return found
