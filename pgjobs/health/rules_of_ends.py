"""The rules about what ended badly, what needs a person, and the database itself."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator

from pgjobs.health.endings import OVERDUE_LIMIT
from pgjobs.health.facts import Facts
from pgjobs.health.phrases import counted, many, span
from pgjobs.health.verdict import Problem
from pgjobs.health.work import LATELY_LIMIT
from pgjobs.queue.standing import Standing
from pgjobs.redaction import redacted_start, redacted_text

_LATELY = dt.timedelta(hours=1)


def dead_new(facts: Facts) -> Iterator[Problem]:
    """Causes that were not there an hour ago or came back, and types that die far more than they use to."""
    told: set[str | None] = set()
    for cause in facts.new_causes:
        told.add(cause.job_type)
        told_by = redacted_start(cause.error, payload=cause.payload, job_type=cause.job_type)
        error = " ".join(told_by.split())[:120]
        yield Problem(
            "DEAD_NEW",
            f"{many(cause.jobs + cause.more, 'job', cause.jobs)} of {cause.job_type} ended by a cause not seen "
            f"before: {error}",
            _cure(cause.fingerprint),
            cause.first_at,
            cause.queue,
            "fingerprint",
            cause.fingerprint,
        )
    for back in _came_back(facts):
        told.add(back.job_type)
        yield Problem(
            "DEAD_NEW",
            f"{back.error_class or 'An error'} of {back.job_type} came back on {back.version}; {back.by} had "
            f"acknowledged it on {back.since:%Y-%m-%d}: {redacted_text(' '.join(back.note.split()))[:120]}",
            _cure(back.fingerprint),
            back.back_at,
            back.queue or "",
            "fingerprint",
            back.fingerprint,
        )
    for job_type, queue, lately, usual in facts.dead_rates:
        if job_type not in told:
            yield Problem(
                "DEAD_NEW",
                f"{many(lately, 'job')} of {job_type} died in the last hour; {usual:.1f} is usual.",
                "Look at its errors, and at what was changed.",
                None,
                queue,
                "job_type",
                job_type,
            )


def _came_back(facts: Facts) -> Iterator[Standing]:
    """What was acknowledged and is open again since the last hour, apart from what is told as new."""
    new = {cause.fingerprint for cause in facts.new_causes}
    for each in facts.standing.values():
        if each.back_at and facts.clock - each.back_at < _LATELY and each.fingerprint not in new:
            yield each


def _cure(fingerprint: str) -> str:
    name = shlex.quote(fingerprint[:12])
    return (
        f"Look at the group of this error (manage.py pgjobs_errors show {name}); retry it when the cause "
        f"is gone, or acknowledge it."
    )


def dead_total(facts: Facts) -> Iterator[Problem]:
    """A heap that nobody looks at."""
    total, lately = facts.dead.total, facts.dead.last_hour
    limit = facts.settings.dead_alert
    if total > limit:
        yield Problem(
            "DEAD_TOTAL",
            f"{counted(total, limit)} dead and failed jobs are in the table, {counted(lately, LATELY_LIMIT)} of them "
            f"of the last hour; DEAD_ALERT is {limit:,}.",
            "Retry what can work by now, discard the rest, or set JOB_RETENTION_FAILED_SECONDS.",
        )


def approval_overdue(facts: Facts) -> Iterator[Problem]:
    """Approvals that should have been resolved, by a person or by their time-out."""
    found = facts.workflows
    if found.overdue and found.overdue_since:
        late = _past_their_time(facts, many(found.overdue, "approval", OVERDUE_LIMIT), found.overdue_since)
        yield Problem(
            "APPROVAL_OVERDUE",
            f"{late} (execution {found.overdue_id}); the time-out that was declared has not been carried out.",
            "Start a worker that knows the workflow, and see whether its execution is paused; or decide.",
            found.overdue_since,
            kind="execution",
            target=str(found.overdue_id),
        )


def wait_overdue(facts: Facts) -> Iterator[Problem]:
    """Sleeps, retries and time-outs whose time has come, and that no worker ends."""
    found = facts.workflows
    if found.waits and found.waits_since:
        late = _past_their_time(
            facts, many(found.waits, "wait", OVERDUE_LIMIT) + " of workflows", found.waits_since
        )
        yield Problem(
            "WAIT_OVERDUE",
            f"{late} (execution {found.waits_id}): no worker has ended them.",
            "Start a worker with the code of the workflows; where one lives, see its log.",
            found.waits_since,
            kind="execution",
            target=str(found.waits_id),
        )


def _past_their_time(facts: Facts, what: str, since: dt.datetime) -> str:
    return f"{what} past their time, the first for {span(facts.clock - since)}"


def paused_executions(facts: Facts) -> Iterator[Problem]:
    """Executions that stand until a person says so."""
    found = facts.workflows
    if found.paused and found.paused_since:
        given, name = found.paused_input, found.paused_workflow
        why = redacted_start(found.paused_reason or "", payload=given, workflow=name)
        reason = " ".join(why.split())[:160]
        yield Problem(
            "PAUSED_EXECUTIONS",
            f"{many(found.paused, 'execution')} paused, the first for {span(facts.clock - found.paused_since)} "
            f"(execution {found.paused_id}): {reason or 'no reason was given'}",
            "Mend what the reason names, then manage.py pgjobs_resume --execution ID; or cancel.",
            found.paused_since,
            "",
            "execution",
            str(found.paused_id),
        )


def bulk_stuck(facts: Facts) -> Iterator[Problem]:
    """Operations that nobody carries on."""
    for bulk in facts.stuck_bulks:
        yield Problem(
            "BULK_STUCK",
            f"Bulk operation {bulk.id} ({bulk.verb}) has not moved for {span(facts.clock - bulk.since)}; {bulk.done:,} "
            f"of about {bulk.total:,} are done.",
            f"Start a worker, or manage.py pgjobs_bulk run {bulk.id}.",
            bulk.since,
            "",
            "bulk",
            str(bulk.id),
        )


def db_horizon(facts: Facts) -> Iterator[Problem]:
    """What will make every claim slower by and by."""
    for burden in facts.burdens:
        if burden.kind == "transaction" and burden.since:
            who = f"session {burden.name}" + (f" ({burden.detail})" if burden.detail else "")
            yield Problem(
                "DB_HORIZON",
                f"A transaction of {who} has been open for {span(facts.clock - burden.since)} and holds back vacuum.",
                f"Have it commit, or SELECT pg_terminate_backend({burden.name}).",
                burden.since,
            )
        elif burden.kind == "rows":
            ago = f"{span(facts.clock - burden.since)} ago" if burden.since else "never"
            yield Problem(
                "DB_HORIZON",
                f"{burden.detail} % of the rows of {burden.name} are dead; it was last vacuumed {ago}.",
                "manage.py pgjobs_doctor says what keeps autovacuum from it.",
                burden.since,
            )
