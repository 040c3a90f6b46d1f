"""What an answer to "why does it not go on?" is made of, and the obstacles that jobs and executions have in common."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote
from typing import Any

from pgjobs.health.facts import Facts
from pgjobs.health.phrases import at, many, span
from pgjobs.health.workers import NEVER_SERVED, WorkerRow, supervisors
from pgjobs.queue.pauses import QUEUE, TYPE
from pgjobs.redaction import redacted_text

OK, FAIL, INFO = "ok", "fail", "info"

# Jobs and executions share the processes.
_SUSPECTS = " UNION ALL ".join(
    f"""(SELECT t.lease_owner FROM {table} AS t WHERE t.status = 'running' AND t.crash_count > 0
         ORDER BY t.lease_owner, t.id LIMIT 100)"""  # noqa: S608 - two names
    for table in ("pgjobs_job", "pgjobs_execution")
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that could keep it from going on."""

    state: str
    """"ok", "fail" or "info"."""
    sentence: str
    kind: str = ""
    """What ``target`` names: "queue", "paused queue", "paused type", "type", "worker", "job", "execution", "approval",
    or nothing."""
    target: str = ""
    cure: str = ""
    """What helps, where that is not the same for all of the kind. Names from rows are quoted for the shell."""


@dataclass(frozen=True, slots=True)
class Why:
    """The answer."""

    kind: str
    """"job" or "execution"."""
    id: int
    name: str
    """Of its job type or workflow."""
    queue: str
    status: str
    since: dt.datetime | None
    """Since when it stands so."""
    age: dt.timedelta | None
    checks: list[Check]

    @property
    def reason(self) -> Check | None:
        """The first check that fails."""
        return next((check for check in self.checks if check.state == FAIL), None)

    @property
    def cure(self) -> str:
        """What helps against the reason; empty where there is none, or nothing to do but wait."""
        if self.reason is None or self.reason.cure:
            return self.reason.cure if self.reason else ""
        return _CURES.get(self.reason.kind, "").format(queue=quote(self.queue), name=quote(self.name))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": 1,
            self.kind: self.id,
            "job_type" if self.kind == "job" else "workflow": self.name,
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


def open_checks(row: Any, name: str, facts: Facts) -> Iterator[Check]:
    """What may keep a row whose type is ``name`` from being claimed: a pause, or that nobody is there."""
    yield from _pause_checks(row.queue, name, facts)
    yield from _worker_checks(row.queue, name, facts)


def _pause_checks(queue: str, name: str, facts: Facts) -> Iterator[Check]:
    """The pauses that people have laid on its queue and its type."""
    for pause in facts.pauses:
        if (pause.kind, pause.name) in ((QUEUE, queue), (TYPE, name)):
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


def _worker_checks(queue: str, name: str, facts: Facts) -> Iterator[Check]:
    """Whether somebody is there to run it, and turns."""
    workers = facts.serving(queue)
    if not workers:
        last = max((w for w in facts.workers if w.serves(queue)), key=lambda w: w.heartbeat_at, default=None)
        yield Check(FAIL, f"No live worker serves {queue!r}. {_last(last)}", "queue", queue)
        return
    if not any(worker.handlers is None or name in worker.handlers for worker in workers):
        yield Check(
            FAIL,
            f"No live worker of {queue!r} knows {name!r}: the code that they run has no such handler.",
            "type",
            name,
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
    yield Check(OK, f"{many(len(workers), 'live worker')} of {queue!r} and {name!r}")


def running_checks(row: Any, since: dt.datetime | None, attempt: str, facts: Facts) -> Iterator[Check]:
    """Who holds a leased row, and whether still."""
    holder = next((worker for worker in facts.workers if worker.name == row.lease_owner), None)
    began = f" since {at(since)}" if since else ""
    yield Check(
        INFO,
        f"It runs on {row.lease_owner}{began}, {attempt} {row.attempt_count}.",
        "worker",
        str(holder.id) if holder else "",
    )
    if row.lease_expires_at and row.lease_expires_at < facts.clock:
        yield Check(
            FAIL,
            f"Its lease lapsed {span(facts.clock - row.lease_expires_at)} ago: its worker is gone or cut off. A reaper "
            f"takes it back.",
            "lease",
        )


def suspect_checks(row: Any, facts: Facts) -> Iterator[Check]:
    """The processes that run nothing else, for which rows wait whose worker died; each runworkers has its own."""
    if not row.crash_count:
        return
    there = {worker.name: worker for worker in facts.workers}
    alone = {owner for (owner,) in facts.reader.ask(_SUSPECTS)}
    taken = sum(owner not in there or there[owner].serves(row.queue) for owner in alone)
    each = facts.settings.isolated_processes
    groups = max(supervisors(facts.serving(row.queue)), 1)
    share = f" ({each} of each of {groups} runworkers)" if groups > 1 else ""
    yield Check(
        FAIL if taken >= each * groups else INFO,
        f"Its worker died {times(row.crash_count)}, so it runs alone in its process: {taken} of the "
        f"{each * groups} processes for suspects are taken{share}.",
        "suspect",
    )


def archived(kind: str, row: Any, name: str, queue: str, end: str) -> Why:
    """Of a row that is in the archive alone. ``end`` says what it does no more."""
    told = (
        f"It is {row.status} since {row.completed_at:%Y-%m-%d %H:%M:%S} and was archived; it {end} no more."
    )
    return Why(kind, row.pk, name, queue, row.status, row.completed_at, None, [Check(INFO, told)])


def times(number: int) -> str:
    """ "once", "2 times"."""
    return "once" if number == 1 else f"{number} times"


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


_CURES = {
    "paused queue": "manage.py pgjobs_resume --queue {queue}",
    "paused type": "manage.py pgjobs_resume --type {name}",
    "queue": "start a worker: manage.py runworkers --queues {queue}",
    "type": "deploy the code that has the handler, or keep the old name with name=",
    "worker": "see what that process waits for, then end it by SIGTERM",
    "lease": "start a reaper: manage.py runreaper, or workers without --no-reaper",
    "slots": "wait, or add workers or slots",
    "suspect": "wait, or raise ISOLATED_PROCESSES",
}
