"""Why one execution does not go on: where it is, what it waits for, and what keeps it; as for jobs."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from django.db import Error

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
from pgjobs.health.phrases import at, counted, many, span
from pgjobs.health.reading import Reader
from pgjobs.redaction import redacted_text
from pgjobs.workflows.approvals import DEFAULT_PERMISSION
from pgjobs.workflows.deciders import Doubt, doubt
from pgjobs.workflows.models import ArchivedExecution, Execution
from pgjobs.workflows.states import TERMINAL, ExecutionStatus, OnTimeout, WaitKind

_LOOKED = 1_000
"""Open waits that are looked at; a gather may have more."""
_TOLD = 5
_OVERDUE = dt.timedelta(seconds=30)
"""A wait that was due longer ago has been seen by nobody who could wake it."""

_COMES_TO = {OnTimeout.REJECT.value: "rejected", OnTimeout.APPROVE.value: "approved"}

_LATEST = """
SELECT step_id, ordinal, statement_timestamp() - recorded_at FROM pgjobs_stepoutput
WHERE execution_id = %(id)s ORDER BY ordinal DESC, id DESC LIMIT 1"""

_WAITS = """
SELECT wait.id, wait.step_id, wait.kind, wait.name, wait."group", wait.target_id, wait.created_at, wait.wake_at,
       wait.permission, wait.groups::text, wait.users::text, wait.on_timeout,
       COALESCE(job.status, child.status), COALESCE(job.job_type, child.workflow_name)
FROM (SELECT * FROM pgjobs_wait WHERE execution_id = %(id)s AND resolved_at IS NULL
      ORDER BY ordinal, id LIMIT %(most)s) AS wait
LEFT JOIN pgjobs_job AS job ON wait.kind = 'job' AND job.id = wait.target_id
LEFT JOIN pgjobs_execution AS child ON wait.kind = 'child' AND child.id = wait.target_id
ORDER BY wait.ordinal, wait.id"""

_LETTERS = """
SELECT name, count(*) FROM (SELECT name FROM pgjobs_message
                            WHERE execution_id = %(id)s AND consumed_by_id IS NULL ORDER BY id LIMIT 100) AS letters
GROUP BY name ORDER BY name LIMIT 5"""

_AHEAD = """
SELECT count(*) FROM (
    SELECT FROM pgjobs_execution AS t
    WHERE t.status = 'enqueued' AND t.crash_count = 0 AND t.queue = %(queue)s
      AND (t.priority, t.available_at, t.id) < (%(priority)s::smallint, %(at)s::timestamptz, %(id)s::bigint)
    ORDER BY t.priority, t.available_at, t.id LIMIT %(most)s) AS ahead"""


@dataclass(frozen=True, slots=True)
class _Open:
    """One open wait, and how what it waits for stands."""

    id: int
    step: str
    kind: str
    name: str
    group: str
    target: int | None
    since: dt.datetime
    ends: dt.datetime | None
    permission: str
    groups: str
    users: str
    on_timeout: str
    status: str | None
    type: str | None

    @property
    def place(self) -> str:
        """The call: of all members of a gather the same."""
        return self.group if self.target is not None and self.group else self.step

    @property
    def asked(self) -> str:
        """Whose decision it is."""
        who = [f"permission {self.permission}"] if self.permission else []
        who += [f"group {each}" for each in json.loads(self.groups)]
        who += [f"user {each}" for each in json.loads(self.users)]
        return ", ".join(who) or f"permission {DEFAULT_PERMISSION}"


def why_execution(pk: int, *, using: str | None = None) -> Why | None:
    """Why execution ``pk`` does not go on; None when there is none. Raises what the database raises."""
    using = using or get_settings().database
    with Reader(using) as reader:
        row = reader.within(lambda: Execution._base_manager.using(using).filter(pk=pk).first())
        if row is None:
            old = ArchivedExecution._base_manager.using(using).defer("story")
            found = reader.within(lambda: old.filter(pk=pk).first())
            return archived("execution", found, found.workflow_name, "", "goes on") if found else None
        facts = Facts(reader)
        checks = list(_checks(row, facts))
        since = row.completed_at or row.updated_at
        return Why(
            "execution", row.pk, row.workflow_name, row.queue, row.status, since, facts.clock - since, checks
        )


def _checks(row: Execution, facts: Facts) -> Iterator[Check]:
    if row.status in TERMINAL:
        yield from _ended(row, facts)
        return
    if row.status != ExecutionStatus.WAITING:
        yield _place(row, facts)
    if row.status == ExecutionStatus.RUNNING:
        yield from running_checks(row, row.updated_at, "turn", facts)
        return
    if row.status == ExecutionStatus.PAUSED:
        yield _paused(row)
    yield from _waits(row, facts)
    yield from open_checks(row, row.workflow_name, facts)
    if row.status == ExecutionStatus.ENQUEUED:
        yield from _turn(row, facts)


def _ended(row: Execution, facts: Facts) -> Iterator[Check]:
    told = _text(row, row.note)
    yield Check(INFO, f"It is {row.status}{f' ({told})' if told else ''}; it goes on no more by itself.")
    if row.status == ExecutionStatus.FAILED:
        yield _place(row, facts)
        yield Check(INFO, _text(row, row.last_error) or "no error is recorded")
        yield Check(
            INFO,
            f"manage.py pgjobs_retry --execution {row.pk} makes the call that failed again; manage.py pgjobs_fork "
            f"{row.pk} --from STEP --reason ... goes on from an earlier one.",
        )


def _place(row: Execution, facts: Facts) -> Check:
    """Where it is: a call that is answered is recorded."""
    found = facts.reader.ask(_LATEST, id=row.pk)
    if not found:
        return Check(INFO, "no step of it is recorded yet")
    step, ordinal, age = found[0]
    return Check(INFO, f"the latest recorded step is {step!r}, call {ordinal}, {span(age)} ago")


def _paused(row: Execution) -> Check:
    reason = _text(row, row.pause_reason) or "no reason is recorded"
    return Check(
        FAIL,
        f"It is paused: {reason}",
        "paused execution",
        str(row.pk),
        f"when that is mended: manage.py pgjobs_resume --execution {row.pk}",
    )


def _turn(row: Execution, facts: Facts) -> Iterator[Check]:
    """What an execution that could go on may still wait for."""
    left = row.available_at - facts.clock
    if left > dt.timedelta():
        why = f": its worker died {times(row.crash_count)}" if row.crash_count else ""
        yield Check(FAIL, f"Its turn comes at {at(row.available_at)}, in {span(left)}{why}.", "time")
        return
    yield from suspect_checks(row, facts)
    workers = facts.serving(row.queue)
    if row.crash_count or not workers:
        return
    params = {"queue": row.queue, "priority": row.priority, "at": row.available_at, "id": row.pk}
    ((ahead,),) = facts.reader.ask(_AHEAD, most=_LOOKED + 1, **params)
    capacity, running = sum(worker.slots for worker in workers), facts.running(row.queue)
    yield Check(INFO, f"{many(ahead, 'execution', _LOOKED)} ahead of it in {row.queue!r}")
    if running >= capacity:
        yield Check(FAIL, f"{running} of {capacity} slots are taken: the workers are busy", "slots")
    else:
        waited = span(facts.clock - row.available_at)
        yield Check(
            INFO, f"It can go on now. A worker should take it within seconds; it has waited {waited}."
        )


def _waits(row: Execution, facts: Facts) -> Iterator[Check]:
    """What it waits for: a gather as a whole, anything else by itself."""
    found = [_Open(*each) for each in facts.reader.ask(_WAITS, id=row.pk, most=_LOOKED + 1)]
    calls: dict[str, list[_Open]] = {}
    for wait in found:
        calls.setdefault(wait.place, []).append(wait)
    for place, waits in list(calls.items())[:_TOLD]:
        yield _gather(place, waits) if len(waits) > 1 else _wait(row, waits[0], facts)
    if len(calls) > _TOLD:
        yield Check(INFO, f"{many(len(calls) - _TOLD, 'more wait', _LOOKED - _TOLD)}")
    if any(wait.kind == WaitKind.SIGNAL for wait in found):
        yield from _letters(row, facts)
    if not found and row.status == ExecutionStatus.WAITING:
        yield Check(
            FAIL,
            "It waits, and nothing that it waits for is open: a worker looks for such executions and wakes them.",
            "queue",
            row.queue,
        )


def _gather(place: str, waits: list[_Open]) -> Check:
    states = Counter(wait.status or "gone" for wait in waits)
    told = ", ".join(f"{n} {state}" for state, n in states.most_common())
    first = next((wait for wait in waits if wait.status != "running"), waits[0])
    return _on_target(
        f"It waits in {place!r} for {counted(len(waits), _LOOKED)} {first.kind}s: {told}.", first
    )


def _wait(row: Execution, wait: _Open, facts: Facts) -> Check:
    step, ends = wait.step, wait.ends
    if ends and facts.clock - ends > _OVERDUE:
        late = f"{step!r} was due {span(facts.clock - ends)} ago, and no worker has looked"
        return Check(FAIL, f"{late}: each one wakes what is due.", "queue")
    left = span(ends - facts.clock) if ends else ""
    waited = f"It has waited {span(facts.clock - wait.since)} in {step!r} for"
    gives_up = f"; it gives up in {left}, at {at(ends)}" if ends else ""
    if wait.kind == WaitKind.APPROVAL:
        return _approval(row, wait, facts, left)
    if wait.kind == WaitKind.SIGNAL:
        name = _text(row, wait.name)
        cure = "send it: the button of its page, or execution.signal(name, payload)"
        return Check(FAIL, f"{waited} the signal {name!r}{gives_up}.", "signal", name, cure)
    if wait.target is not None:
        known = f"{wait.type}, {wait.status}" if wait.status else "no longer in the table"
        return _on_target(f"{waited} {wait.kind} {wait.target} ({known}){gives_up}.", wait)
    name, retried, attempt = step.partition("~retry")
    doing = (
        f"Attempt {attempt} of {name!r} failed; it waits for the next"
        if retried
        else f"It sleeps in {step!r}"
    )
    return Check(FAIL, f"{doing} until {at(ends)}, another {left}." if ends else f"{doing}.", "time")


def _approval(row: Execution, wait: _Open, facts: Facts, left: str) -> Check:
    asked = f"It has waited {span(facts.clock - wait.since)} in {wait.step!r} for a decision on"
    waited = f"{asked} {_text(row, wait.name)!r}, by {wait.asked}"
    comes_to = _COMES_TO.get(wait.on_timeout, "a timeout")
    until = f"; undecided it is {comes_to} in {left}" if left else ""
    wrong = _doubt(wait, facts)
    cure = f"manage.py pgjobs_approve {wait.id} --approve --user NAME, or --reject --reason WHY"
    if wrong and wrong.nobody:
        cure = f"mend what the names stand for, or as a superuser: {cure}"
    told = f"{waited}{until}{f'. But {wrong}' if wrong else ''}."
    return Check(FAIL, told, "approval", str(wait.id), cure)


def _doubt(wait: _Open, facts: Facts) -> Doubt | None:
    """Whether anybody can decide; None also where that cannot be read."""
    try:
        return facts.reader.within(
            lambda: doubt(wait.permission, json.loads(wait.groups), json.loads(wait.users))
        )
    except Error:
        return None


def _on_target(sentence: str, wait: _Open) -> Check:
    child = wait.kind == WaitKind.CHILD
    cure = f"manage.py pgjobs_why {'--execution ' if child else ''}{wait.target}"
    return Check(FAIL, sentence, "execution" if child else "job", str(wait.target), cure)


def _letters(row: Execution, facts: Facts) -> Iterator[Check]:
    """Signals that came under names for which nobody waits: a misspelt one is found here."""
    found = facts.reader.ask(_LETTERS, id=row.pk)
    if found:
        told = ", ".join(f"{_text(row, name)!r} ×{number}" for name, number in found)
        yield Check(INFO, f"in its mailbox, taken by no wait: {told}")
    else:
        yield Check(OK, "its mailbox is empty")


def _text(row: Execution, text: str) -> str:
    told = redacted_text(text, payload=row.input, workflow=row.workflow_name)
    return " ".join(told.split())[:500]
