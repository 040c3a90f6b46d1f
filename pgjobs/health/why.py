"""Why one job is not running: ordered checks, each with a sentence; the first that fails is the reason."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

from pgjobs.conf import get_settings
from pgjobs.health.answer import (
    FAIL,
    INFO,
    OK,
    Check,
    Why,
    archived,
    open_checks,
    running_checks,
    suspect_checks,
    times,
)
from pgjobs.health.facts import Facts
from pgjobs.health.phrases import at, counted, span
from pgjobs.health.reading import Reader
from pgjobs.queue.archive import find_job
from pgjobs.queue.models import ArchivedJob, Job
from pgjobs.queue.states import JobStatus
from pgjobs.queue.stats import COUNT_LIMIT
from pgjobs.redaction import redacted_text

# In the order of the claim; rows that are not due yet are counted out afterwards, so they count towards the limit.
_AHEAD = """
SELECT count(*) FILTER (WHERE available_at <= statement_timestamp()), count(*) FROM (
    SELECT t.available_at FROM pgjobs_job AS t
    WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue = %(queue)s
      AND (t.priority, t.available_at, t.id) < (%(priority)s::smallint, %(available_at)s::timestamptz, %(id)s::bigint)
    ORDER BY t.priority, t.available_at, t.id LIMIT %(most)s) AS ahead"""

_KEY = "SELECT job_id, produced_by FROM pgjobs_jobresult WHERE idempotency_key = %(key)s"


def why(pk: int, *, using: str | None = None) -> Why | None:
    """Why job ``pk`` is not running; None when there is no such job. Raises what the database raises."""
    using = using or get_settings().database
    with Reader(using) as reader:
        job = reader.within(lambda: Job._base_manager.using(using).filter(pk=pk).first())
        if job is None:
            old = reader.within(lambda: find_job(pk))
            if not isinstance(old, ArchivedJob):
                return None
            return archived("job", old, old.job_type, old.queue, "runs")
        facts = Facts(reader)
        if job.status != JobStatus.PENDING:
            return _settled(job, facts)
        due = job.available_at <= facts.clock
        since = job.available_at if due else job.created_at
        checks = [check for part in _PARTS for check in part(job, facts)]
    if not any(check.state == FAIL for check in checks):
        waited = facts.clock - job.available_at
        checks.append(
            Check(
                INFO, f"It can run now. A worker should take it within seconds; it has waited {span(waited)}."
            )
        )
    return _answer(job, since, facts, checks)


def _answer(job: Job, since: dt.datetime | None, facts: Facts, checks: list[Check]) -> Why:
    age = facts.clock - since if since else None
    return Why("job", job.pk, job.job_type, job.queue, job.status, since, age, checks)


def _settled(job: Job, facts: Facts) -> Why:
    """A job that runs, or has ended."""
    if job.status == JobStatus.RUNNING:
        return _answer(
            job, job.started_at, facts, list(running_checks(job, job.started_at, "attempt", facts))
        )
    note = f" ({_note(job)})" if job.note else ""
    checks = [Check(INFO, f"It is {job.status}{note}; it runs no more by itself.")]
    if job.status in (JobStatus.DEAD, JobStatus.FAILED, JobStatus.CANCELLED):
        checks.append(Check(INFO, f"manage.py pgjobs_retry --job {job.pk} sends it back to the queue."))
    return _answer(job, job.completed_at, facts, checks)


def _time_checks(job: Job, facts: Facts) -> Iterator[Check]:
    wait = job.available_at - facts.clock
    if wait <= dt.timedelta():
        yield Check(OK, "its time has come")
    elif job.crash_count:
        yield Check(
            FAIL,
            f"Its worker died {times(job.crash_count)}: it waits another {span(wait)} before it runs alone.",
            "time",
        )
    elif job.attempt_count and job.last_error:
        error = redacted_text(job.last_error, payload=job.payload, job_type=job.job_type)
        yield Check(
            FAIL,
            f"Attempt {job.attempt_count} failed; the next comes in {span(wait)}, at {at(job.available_at)}: "
            f"{' '.join(error.split())[:200]}",
            "time",
        )
    else:
        snoozed = f" ({_note(job)})" if job.note else ""
        yield Check(FAIL, f"It is not due before {at(job.available_at)}, in {span(wait)}{snoozed}.", "time")


def _key_checks(job: Job, facts: Facts) -> Iterator[Check]:
    if not job.idempotency_key:
        return
    found = facts.reader.ask(_KEY, key=job.idempotency_key)
    if found:
        yield Check(
            INFO,
            f"Its idempotency key has a result already, by job {found[0][0]}: it will end at once, with that result.",
            "job",
            str(found[0][0]),
        )
    else:
        yield Check(OK, "its idempotency key has no result yet")


def _line_checks(job: Job, facts: Facts) -> Iterator[Check]:
    workers = facts.serving(job.queue)
    capacity, running = sum(worker.slots for worker in workers), facts.running(job.queue)
    if job.crash_count or not workers:
        return
    params = {
        "queue": job.queue,
        "priority": job.priority,
        "available_at": job.available_at,
        "id": job.pk,
        "most": COUNT_LIMIT + 1,
    }
    ((ahead, looked),) = facts.reader.ask(_AHEAD, **params)
    limit = COUNT_LIMIT if looked > COUNT_LIMIT else max(ahead, 1)
    rate = facts.rates.get(job.queue)
    eta = ""
    if rate and rate.done_per_minute and ahead:
        eta = f", about {span(ahead / rate.done_per_minute * 60)} at the present rate"
    told = counted(ahead, limit) if looked <= COUNT_LIMIT else f"{ahead:,} or more"
    yield Check(INFO, f"{told} ahead of it in {job.queue!r}{eta}")
    busy = running >= capacity
    yield Check(
        FAIL if busy and job.available_at <= facts.clock else INFO,
        f"{running} of {capacity} slots are taken" + (": the workers are busy" if busy else ""),
        "slots" if busy else "",
    )


def _note(job: Job) -> str:
    return redacted_text(job.note, payload=job.payload, job_type=job.job_type)


_PARTS: tuple[Callable[[Job, Facts], Iterator[Check]], ...] = (
    lambda job, facts: open_checks(job, job.job_type, facts),
    _time_checks,
    suspect_checks,
    _key_checks,
    _line_checks,
)
