"""Why one job is not running: ordered checks, each with a sentence; the first that fails is the reason."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.health.facts import Facts
from pgjobs.health.phrases import at, counted, many, span
from pgjobs.health.reading import Reader
from pgjobs.health.workers import NEVER_SERVED, WorkerRow
from pgjobs.queue.archive import find_job
from pgjobs.queue.models import ArchivedJob, Job
from pgjobs.queue.pauses import QUEUE, TYPE
from pgjobs.queue.states import JobStatus
from pgjobs.queue.stats import COUNT_LIMIT
from pgjobs.redaction import redacted_text

OK, FAIL, INFO = "ok", "fail", "info"

# In the order of the claim; rows that are not due yet are counted out afterwards, so they count towards the limit.
_AHEAD = """
SELECT count(*) FILTER (WHERE available_at <= statement_timestamp()), count(*) FROM (
    SELECT t.available_at FROM pgjobs_job AS t
    WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue = %(queue)s
      AND (t.priority, t.available_at, t.id) < (%(priority)s::smallint, %(available_at)s::timestamptz, %(id)s::bigint)
    ORDER BY t.priority, t.available_at, t.id LIMIT %(most)s) AS ahead"""

_KEY = "SELECT job_id, produced_by FROM pgjobs_jobresult WHERE idempotency_key = %(key)s"
_SUSPECTS = """
SELECT count(*) FROM (SELECT 1 FROM pgjobs_job AS t WHERE t.status = 'running' AND t.crash_count > 0
                      ORDER BY t.lease_owner, t.id LIMIT 100) AS alone"""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that could keep it from running."""

    state: str
    """"ok", "fail" or "info"."""
    sentence: str
    kind: str = ""
    """What ``target`` names: "queue", "paused queue", "paused type", "type", "worker", "job", or nothing."""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """The answer."""

    job_id: int
    job_type: str
    queue: str
    status: str
    since: dt.datetime | None
    """Since when it stands so."""
    age: dt.timedelta | None
    checks: list[Check]
    cure: str = ""

    @property
    def reason(self) -> Check | None:
        """The first check that fails."""
        return next((check for check in self.checks if check.state == FAIL), None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": 1,
            "job": self.job_id,
            "job_type": self.job_type,
            "queue": self.queue,
            "status": self.status,
            "since": self.since.isoformat() if self.since else None,
            "reason": self.reason.sentence if self.reason else None,
            "checks": [
                {"state": c.state, "sentence": c.sentence, "kind": c.kind, "target": c.target}
                for c in self.checks
            ],
            "cure": self.cure,
        }


def why(pk: int, *, using: str | None = None) -> Why | None:
    """Why job ``pk`` is not running; None when there is no such job. Raises what the database raises."""
    using = using or get_settings().database
    job = Job._base_manager.using(using).filter(pk=pk).first()
    if job is None:
        archived = find_job(pk)
        return _archived(archived) if isinstance(archived, ArchivedJob) else None
    with Reader(using) as reader:
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
    reason = next((check for check in checks if check.state == FAIL), None)
    cure = _CURES.get(reason.kind, "").format(queue=job.queue, job_type=job.job_type) if reason else ""
    return Why(job.pk, job.job_type, job.queue, job.status, since, age, checks, cure)


def _archived(job: ArchivedJob) -> Why:
    sentence = (
        f"It is {job.status} since {job.completed_at:%Y-%m-%d %H:%M:%S} and was archived; it runs no more."
    )
    return Why(job.pk, job.job_type, job.queue, job.status, job.completed_at, None, [Check(INFO, sentence)])


def _settled(job: Job, facts: Facts) -> Why:
    """A job that runs, or has ended."""
    if job.status == JobStatus.RUNNING:
        return _answer(job, job.started_at, facts, list(_running(job, facts)))
    note = f" ({_note(job)})" if job.note else ""
    checks = [Check(INFO, f"It is {job.status}{note}; it runs no more by itself.")]
    if job.status in (JobStatus.DEAD, JobStatus.FAILED, JobStatus.CANCELLED):
        checks.append(Check(INFO, f"manage.py pgjobs_retry --job {job.pk} sends it back to the queue."))
    return _answer(job, job.completed_at, facts, checks)


def _running(job: Job, facts: Facts) -> Iterator[Check]:
    holder = next((worker for worker in facts.workers if worker.name == job.lease_owner), None)
    started = f" since {at(job.started_at)}" if job.started_at else ""
    yield Check(
        INFO,
        f"It runs on {job.lease_owner}{started}, attempt {job.attempt_count}.",
        "worker",
        str(holder.id) if holder else "",
    )
    if job.lease_expires_at and job.lease_expires_at < facts.clock:
        yield Check(
            FAIL,
            f"Its lease lapsed {span(facts.clock - job.lease_expires_at)} ago: its worker is gone or cut off. A reaper "
            f"takes it back.",
            "lease",
        )


def _pause_checks(job: Job, facts: Facts) -> Iterator[Check]:
    for pause in facts.pauses:
        if (pause.kind == QUEUE and pause.name == job.queue) or (
            pause.kind == TYPE and pause.name == job.job_type
        ):
            until = f"until {pause.until:%Y-%m-%d %H:%M:%S}" if pause.until else "until it is resumed"
            what = "Queue" if pause.kind == QUEUE else "Type"
            yield Check(
                FAIL,
                f"{what} {pause.name!r} is paused by {pause.by} since {at(pause.since)}, {until}: "
                f"{redacted_text(pause.reason)}",
                f"paused {pause.kind}",
                pause.name,
            )
            return
    yield Check(OK, "neither its queue nor its type is paused")


def _worker_checks(job: Job, facts: Facts) -> Iterator[Check]:
    workers = facts.serving(job.queue)
    if not workers:
        last = max(
            (w for w in facts.workers if w.serves(job.queue)), key=lambda w: w.heartbeat_at, default=None
        )
        yield Check(FAIL, f"No live worker serves {job.queue!r}. {_last(last)}", "queue", job.queue)
        return
    if not any(worker.handlers is None or job.job_type in worker.handlers for worker in workers):
        yield Check(
            FAIL,
            f"No live worker of {job.queue!r} knows {job.job_type!r}: the code that they run has no such handler.",
            "type",
            job.job_type,
        )
        return
    wedged = [worker for worker in workers if worker.state == "wedged"]
    if len(wedged) == len(workers):
        yield Check(
            FAIL,
            f"The claim loop of {wedged[0].name} stands still since {at(wedged[0].last_poll_at or facts.clock)}.",
            "worker",
            str(wedged[0].id),
        )
        return
    yield Check(OK, f"{many(len(workers), 'live worker')} of {job.queue!r} and {job.job_type!r}")


def _time_checks(job: Job, facts: Facts) -> Iterator[Check]:
    wait = job.available_at - facts.clock
    if wait <= dt.timedelta():
        yield Check(OK, "its time has come")
    elif job.crash_count:
        yield Check(
            FAIL,
            f"Its worker died {_times(job.crash_count)}: it waits another {span(wait)} before it runs alone.",
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


def _suspect_checks(job: Job, facts: Facts) -> Iterator[Check]:
    if not job.crash_count:
        return
    limit = facts.settings.isolated_processes
    ((running,),) = facts.reader.ask(_SUSPECTS)
    full = running >= limit
    yield Check(
        FAIL if full else INFO,
        f"Its worker died {_times(job.crash_count)}, so it runs alone in a process of its own: {running} of "
        f"{limit} such processes of each runworkers are taken.",
        "suspect",
    )


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


def _last(worker: WorkerRow | None) -> str:
    if worker is None:
        return NEVER_SERVED
    what = (
        "stopped at"
        if worker.stopped_at
        else "draining, last heard of at"
        if worker.draining
        else "silent since"
    )
    return f"Last: {worker.name} ({worker.host}:{worker.pid}), {what} {at(worker.stopped_at or worker.heartbeat_at)}."


def _note(job: Job) -> str:
    return redacted_text(job.note, payload=job.payload, job_type=job.job_type)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


_PARTS = (_pause_checks, _worker_checks, _time_checks, _suspect_checks, _key_checks, _line_checks)

_CURES = {
    "paused queue": "manage.py pgjobs_resume --queue {queue}",
    "paused type": "manage.py pgjobs_resume --type {job_type}",
    "queue": "start a worker: manage.py runworkers --queues {queue}",
    "type": "deploy the code that has the handler, or keep the old name with @job(name=...)",
    "worker": "see what that process waits for, then end it by SIGTERM",
    "lease": "start a reaper: manage.py runreaper, or workers without --no-reaper",
    "slots": "wait, or add workers or slots",
    "suspect": "wait, or raise ISOLATED_PROCESSES",
}
