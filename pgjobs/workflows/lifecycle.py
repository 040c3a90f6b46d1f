"""The moves of executions that code makes: start, park, finish, fail, pause. Each leaves ``running`` by the fence."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from pgjobs.conf import get_settings
from pgjobs.connections import brief_locks, rows
from pgjobs.leases.fence import as_json, hold, leave
from pgjobs.leases.states import Lease
from pgjobs.queue.enqueue import CHANNEL, NewJobs, insert_awaited
from pgjobs.queue.outcomes import Problem
from pgjobs.workflows.messages import deliver
from pgjobs.workflows.models import Execution
from pgjobs.workflows.states import ExecutionStatus
from pgjobs.workflows.waits import children_ended

_START = """
INSERT INTO pgjobs_execution (workflow_name, version, key, queue, priority, max_crashes, input, started_by,
                              subject_type_id, subject_id, parent_id, continued_from_id, available_at)
VALUES (%(workflow_name)s, %(version)s, %(key)s, %(queue)s, %(priority)s, %(max_crashes)s, %(input)s::jsonb,
        %(started_by)s, %(subject_type_id)s, %(subject_id)s, %(parent_id)s, %(continued_from_id)s,
        COALESCE(%(at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s)))
ON CONFLICT (workflow_name, key) WHERE key IS NOT NULL DO NOTHING
RETURNING id"""

_NOTIFYING = f", (SELECT pg_notify('{CHANNEL}', ''))"

_OPEN = """
INSERT INTO pgjobs_wait (execution_id, step_id, kind, ordinal, arguments_hash, name, "group", rule, target_id,
                         wake_at, permission, groups, users, context, context_hash, on_timeout, quorum, four_eyes)
SELECT %(id)s, given.step_id, given.kind, given.ordinal, given.arguments_hash, given.name, given."group",
       given.rule, given.target_id,
       COALESCE(given.at, clock_timestamp() + make_interval(secs => given.delay)),
       given.permission, given.groups, given.users, given.context, given.context_hash, given.on_timeout,
       given.quorum, given.four_eyes
FROM jsonb_to_recordset(%(waits)s::jsonb) AS given(
    step_id text, kind text, ordinal int, arguments_hash text, name text, "group" text, rule jsonb,
    target_id bigint, at timestamptz, delay float8, permission text, groups jsonb, users jsonb, context jsonb,
    context_hash text, on_timeout text, quorum int, four_eyes boolean)
ON CONFLICT (execution_id, step_id) DO NOTHING
RETURNING id"""

_STANDING = """
SELECT id, step_id, resolved_at IS NOT NULL, resolution::text, COALESCE(resolved_at, created_at)
FROM pgjobs_wait WHERE execution_id = %(id)s AND step_id = ANY(%(step_ids)s::text[])"""

# A parent has the lower id, as a rule. Locked after its child it could meet a cancellation, which goes by id.
_LOCK_FOR_END = """
SELECT id FROM pgjobs_execution WHERE id IN (
    SELECT %(id)s::bigint UNION ALL
    SELECT execution_id FROM pgjobs_wait WHERE target_id = %(id)s AND kind = 'child' AND resolved_at IS NULL)
ORDER BY id FOR NO KEY UPDATE"""

# Without jobs: those of a gather that went on without them end for whoever has forked it.
_CLOSE_WAITS = """
UPDATE pgjobs_wait SET resolved_at = clock_timestamp(), resolution = '{"cancelled": true}'::jsonb
WHERE execution_id = %(id)s AND resolved_at IS NULL AND kind <> 'job'"""

_TAKE_OVER = """
UPDATE pgjobs_execution AS new
SET parent_id = old.parent_id, subject_type_id = old.subject_type_id, subject_id = old.subject_id
FROM pgjobs_execution AS old WHERE new.id = %(new)s AND old.id = %(old)s"""

_TAKE_MAILBOX = """
UPDATE pgjobs_message SET execution_id = %(new)s WHERE execution_id = %(old)s AND consumed_by_id IS NULL"""

_AWAIT_INSTEAD = """
UPDATE pgjobs_wait SET target_id = %(new)s
WHERE target_id = %(old)s AND kind = 'child' AND resolved_at IS NULL"""


@dataclass(frozen=True, slots=True)
class NewExecution:
    """What an execution starts with."""

    workflow_name: str
    version: int
    queue: str
    priority: int
    max_crashes: int
    input: str
    """JSON text of the keyword arguments."""
    key: str | None = None
    started_by: str = ""
    subject_type_id: int | None = None
    subject_id: str | None = None
    parent_id: int | None = None
    continued_from_id: int | None = None
    at: dt.datetime | None = None
    delay: float = 0.0


@dataclass(slots=True)
class NewWait:
    """A wait to be opened. ``at`` is an instant, ``delay`` seconds from now by the database's clock."""

    step_id: str
    kind: str
    ordinal: int
    arguments_hash: str = ""
    name: str = ""
    group: str = ""
    rule: dict[str, Any] = field(default_factory=dict)
    target_id: int | None = None
    at: str | None = None
    delay: float | None = None
    permission: str = ""
    groups: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    context: Any = None
    context_hash: str = ""
    on_timeout: str = "reject"
    quorum: int = 1
    four_eyes: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How a wait stands at the moment its execution would park."""

    wait_id: int
    step_id: str
    resolved: bool
    resolution: str | None
    at: dt.datetime


def insert(new: NewExecution, *, using: str) -> int | None:
    """Insert an execution in the caller's transaction; None when the key is taken."""
    params = {name: getattr(new, name) for name in NewExecution.__slots__}
    sql = _START + (_NOTIFYING if get_settings().notify else "")
    found = rows(using, sql, params)
    return found[0][0] if found else None


def open_waits(
    lease: Lease,
    waits: Sequence[NewWait],
    *,
    enough: Any,
    calls: Sequence[tuple[NewJobs, str, str | None]] = (),
    child: NewExecution | None = None,
    using: str,
) -> tuple[bool, list[Standing]]:
    """Open ``waits`` and park the execution, unless what it waits for has come already.

    One transaction, which holds the execution's row from its start: whoever resolves a wait comes before (then
    it is seen here) or after (then it finds the execution waiting). Jobs (``calls``, one for each wait) and the
    child are inserted in it when their waits are new. ``enough`` says of the standings whether to go on at
    once. Answers (parked, standings). Raises :class:`LeaseLost`.
    """
    step_ids = [wait.step_id for wait in waits]
    with transaction.atomic(using=using):
        brief_locks(using)
        hold(Execution, lease, using=using)
        if (calls or child) and not _standing(lease.pk, step_ids, using):
            if child is not None:
                waits[0].target_id = insert(child, using=using)
            for wait, job_id in zip(waits, insert_awaited(calls, using=using) if calls else [], strict=False):
                wait.target_id = job_id
        opened = rows(using, _OPEN, {"id": lease.pk, "waits": _as_json(waits)})
        for wait in waits:
            if wait.kind == "signal":
                deliver(lease.pk, wait.name, using=using)
        standings = _standing(lease.pk, step_ids, using)
        if enough(standings):
            return False, standings
        # A new wait is progress like a new step: what killed earlier workers lies behind.
        progress: dict[str, Any] = {"crash_count": 0} if opened else {}
        leave(Execution, lease, to=ExecutionStatus.WAITING, using=using, updated_at=Now(), **progress)
    return True, standings


def finish(
    lease: Lease,
    output: str | None,
    *,
    using: str,
    continued: NewExecution | None = None,
    close_waits: bool = False,
) -> None:
    """The body returned. ``continued`` takes over key, parent and subject, and whoever waits for this execution.

    ``close_waits``: changed code may have left waits open that nobody comes back to. Raises :class:`LeaseLost`.
    """
    with transaction.atomic(using=using):
        brief_locks(using)
        awaited = _lock_for_end(lease.pk, using)
        if close_waits:
            rows(using, _CLOSE_WAITS, {"id": lease.pk})
        if continued is None:
            _end(lease, ExecutionStatus.SUCCEEDED, using, awaited, output=as_json(output))
            return
        _end(lease, ExecutionStatus.SUCCEEDED, using, False, key=None)
        params = {"old": lease.pk, "new": insert(continued, using=using)}
        rows(using, _TAKE_OVER, params)
        rows(using, _TAKE_MAILBOX, params)
        if awaited:
            rows(using, _AWAIT_INSTEAD, params)


def fail(lease: Lease, problem: Problem, *, using: str) -> None:
    """The body raised. Raises :class:`LeaseLost`."""
    with transaction.atomic(using=using):
        brief_locks(using)
        awaited = _lock_for_end(lease.pk, using)
        hold(Execution, lease, using=using)
        told = Execution._base_manager.using(using).values_list("errors", "attempt_count").get(pk=lease.pk)
        entry = {
            "attempt": told[1],
            "kind": problem.kind,
            "type": problem.type,
            "message": problem.message,
            "traceback": problem.traceback,
            "worker": lease.owner,
        }
        kept = [*(told[0] if isinstance(told[0], list) else []), entry][-get_settings().max_errors :]
        message = f"{problem.type}: {problem.message}" if problem.type else problem.message
        _end(lease, ExecutionStatus.FAILED, using, awaited, last_error=message, errors=kept)


def pause(lease: Lease, reason: str, *, using: str) -> None:
    """A person is needed. Raises :class:`LeaseLost`."""
    with transaction.atomic(using=using):
        brief_locks(using)
        leave(Execution, lease, to=ExecutionStatus.PAUSED, using=using, pause_reason=reason, updated_at=Now())


def postpone(lease: Lease, reason: str, delay: float, *, using: str) -> None:
    """The turn broke off for a reason that passes by itself: the next one begins after ``delay`` seconds.

    The attempt stays counted. Raises :class:`LeaseLost`.
    """
    soon = RawSQL("clock_timestamp() + make_interval(secs => %s)", (delay,))
    with transaction.atomic(using=using):
        brief_locks(using)
        leave(
            Execution,
            lease,
            to=ExecutionStatus.ENQUEUED,
            using=using,
            available_at=soon,
            note=reason,
            updated_at=Now(),
        )


def _lock_for_end(pk: int, using: str) -> bool:
    """Lock an execution and whoever waits for it, in the order of id; whether somebody does."""
    return len(rows(using, _LOCK_FOR_END, {"id": pk})) > 1


def _end(lease: Lease, to: ExecutionStatus, using: str, awaited: bool, **columns: Any) -> None:
    leave(Execution, lease, to=to, using=using, completed_at=Now(), updated_at=Now(), **columns)
    if awaited:
        children_ended([lease.pk], using)


def _standing(execution_id: int, step_ids: list[str], using: str) -> list[Standing]:
    found = rows(using, _STANDING, {"id": execution_id, "step_ids": step_ids})
    by_id = {row[1]: Standing(*row) for row in found}
    return [by_id[step_id] for step_id in step_ids if step_id in by_id]


def _as_json(waits: Sequence[NewWait]) -> str:
    return json.dumps([{name: getattr(wait, name) for name in NewWait.__slots__} for wait in waits])
