"""Fork: a new execution that shares another's history up to a call, and goes its own way from there."""

from __future__ import annotations

import difflib
import logging
from typing import Any

from django.db import transaction

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.exceptions import InvalidOption, WorkflowError
from pgjobs.queue.audit import Actor
from pgjobs.queue.enqueue import CHANNEL
from pgjobs.workflows.expected import Seen, difference
from pgjobs.workflows.models import Execution

logger = logging.getLogger("pgjobs.control")

# How far the history goes, and its last call when that was never answered (open, or closed by a cancellation).
_EXTENT = """
WITH calls AS (
    SELECT ordinal, false AS open FROM pgjobs_stepoutput WHERE execution_id = %(id)s
    UNION ALL
    SELECT ordinal, (resolved_at IS NULL OR COALESCE(resolution ? 'cancelled', false)) AND NOT EXISTS (
        SELECT FROM pgjobs_stepoutput AS gathered
        WHERE gathered.execution_id = wait.execution_id AND gathered.step_id = wait."group")
    FROM pgjobs_wait AS wait WHERE execution_id = %(id)s
)
SELECT COALESCE(max(ordinal) + 1, 0),
       min(ordinal) FILTER (WHERE open AND ordinal = (SELECT max(ordinal) FROM calls))
FROM calls"""

# Of a gather and of a step with retries the parts are waits.
_CALLS = """
SELECT DISTINCT ordinal, step_id FROM (
    SELECT ordinal, step_id FROM pgjobs_stepoutput WHERE execution_id = %(id)s
    UNION ALL
    SELECT ordinal, COALESCE(NULLIF("group", ''), step_id) FROM pgjobs_wait WHERE execution_id = %(id)s
) AS call"""

# The call with that step id, or calls of that name.
_NAMED = f"""{_CALLS}
WHERE step_id = %(step)s OR left(step_id, length(%(step)s) + 1) IN (%(step)s || '#', %(step)s || '[')
ORDER BY ordinal LIMIT 20"""
_FIRST = f"{_CALLS} ORDER BY ordinal LIMIT %(most)s"
_OFFERED = 20

# The last call, when what it came to was never recorded as a whole: it is open, or it is what the body failed with.
_FAILED_AT = """
SELECT max(wait.ordinal) FROM pgjobs_wait AS wait WHERE wait.execution_id = %(id)s
  AND NOT EXISTS (SELECT FROM pgjobs_stepoutput AS step
                  WHERE step.execution_id = wait.execution_id AND step.ordinal >= wait.ordinal)
  AND NOT EXISTS (SELECT FROM pgjobs_wait AS later
                  WHERE later.execution_id = wait.execution_id AND later.ordinal > wait.ordinal)
  AND (wait.resolved_at IS NULL OR wait.kind IN ('job', 'child') OR wait."group" <> ''
       OR wait.resolution ?| ARRAY['cancelled', 'timeout'])"""

# Without the hashes of arguments, which may hold the other's id: ctx.execution_id is the fork's own.
_COPY_STEPS = """
INSERT INTO pgjobs_stepoutput (execution_id, step_id, kind, ordinal, arguments_hash, output, output_bytes, error,
                               attempts, seconds, recorded_at)
SELECT %(fork)s, step_id, kind, ordinal, '', output, output_bytes, error, attempts, seconds,
       recorded_at
FROM pgjobs_stepoutput WHERE execution_id = %(id)s AND ordinal < %(ordinal)s ORDER BY id"""

# Members of a gather that went on without them come along open: they end for both executions.
_COPY_WAITS = """
INSERT INTO pgjobs_wait (execution_id, step_id, kind, ordinal, arguments_hash, name, "group", rule, target_id,
                         created_at, wake_at, resolved_at, resolution, permission, groups, users, context,
                         context_hash, on_timeout, quorum, four_eyes, votes, approved, decided_by, bypassed, reason)
SELECT %(fork)s, step_id, kind, ordinal, '', name, "group", rule, target_id,
       created_at, wake_at, resolved_at, resolution, permission, groups, users, context,
       context_hash, on_timeout, quorum, four_eyes, votes, approved, decided_by, bypassed, reason
FROM pgjobs_wait WHERE execution_id = %(id)s AND ordinal < %(ordinal)s ORDER BY id"""


def fork(
    execution_id: int, *, from_ordinal: int, actor: Any, reason: str = "", expected: Seen | None = None
) -> Execution:
    """A new execution with the records of all calls before ``from_ordinal`` (the first call is 0); runs at once.

    It draws the same UUIDs and random numbers outside of steps. It has no key and no parent; with a user as
    ``actor``, that user started it. Signals that nobody has taken stay with the old execution, which is not changed.
    Raises :class:`WorkflowError` when there is none or it stands otherwise than ``expected`` (status and
    attempt_count), :class:`InvalidOption` for a call beyond its history or after one that is still waited for.
    """
    using = get_settings().database
    with transaction.atomic(using=using):
        source = Execution._base_manager.using(using).select_for_update().filter(pk=execution_id).first()
        if source is None:
            raise WorkflowError(
                f"there is no execution {execution_id} to fork; archived ones cannot be forked."
            )
        if told := difference(expected, source.status, source.attempt_count, source.lease_owner):
            raise WorkflowError(f"execution {execution_id}: {told}. Nothing was forked.")
        _check(from_ordinal, execution_id, using)
        new = _copied(source, from_ordinal, actor, reason)
        new.save(using=using, force_insert=True)
        params = {"fork": new.pk, "id": execution_id, "ordinal": from_ordinal}
        rows(using, _COPY_STEPS, params)
        rows(using, _COPY_WAITS, params)
        if get_settings().notify:
            rows(using, f"SELECT pg_notify('{CHANNEL}', '')", {})
        new.refresh_from_db(using=using)
    logger.info("execution=%s verb=fork from=%s call=%s by=%s", new.pk, execution_id, from_ordinal, actor)
    return new


def place_of(execution_id: int, step: str | int | None, *, using: str) -> int:
    """The ordinal of a call: by itself, by step id (``charge#2``), or by a name that only one call has.

    None is the call with which a failed execution ended, or at which it waits: the end of its history, or its last
    wait. Raises :class:`InvalidOption` for a step that is not in the history, or there several times.
    """
    if step is None:
        ((failed_at,),) = rows(using, _FAILED_AT, {"id": execution_id})
        ((length, _),) = rows(using, _EXTENT, {"id": execution_id})
        return int(length if failed_at is None else failed_at)
    if isinstance(step, int):
        return step
    if step.isdecimal():
        return int(step)
    found = rows(using, _NAMED, {"id": execution_id, "step": codec.storable_text(step, 1_000)})
    exact = [ordinal for ordinal, step_id in found if step_id == step]
    if len(exact or found) != 1:
        told = ", ".join(repr(step_id) for _, step_id in found)
        rule = f"it names several calls; give one of {told}." if told else _offered(execution_id, step, using)
        raise InvalidOption("from_step", step, f"execution {execution_id}: {rule}")
    return int(exact[0] if exact else found[0][0])


def _offered(execution_id: int, step: str, using: str) -> str:
    """Which calls it has, for somebody who named none of them."""
    names = [step_id for _, step_id in rows(using, _FIRST, {"id": execution_id, "most": _OFFERED + 1})]
    if not names:
        return "it has recorded no call yet; leave the step out, or start it anew."
    near = difflib.get_close_matches(step, names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    more = ", …" if len(names) > _OFFERED else ""
    return f"its calls are {', '.join(map(repr, names[:_OFFERED]))}{more}{meant}"


def _check(from_ordinal: int, execution_id: int, using: str) -> None:
    ((length, waiting_at),) = rows(using, _EXTENT, {"id": execution_id})
    last = length if waiting_at is None else waiting_at
    whole = isinstance(from_ordinal, int) and not isinstance(from_ordinal, bool)
    if not whole or not 0 <= from_ordinal <= last:
        where = "its history ends there" if waiting_at is None else "it still waits there"
        raise InvalidOption(
            "from_ordinal",
            from_ordinal,
            f"give a call of execution {execution_id} from 0 to {last}; {where}.",
        )


def _copied(source: Execution, from_ordinal: int, actor: Any, reason: str) -> Execution:
    told = f"forked from execution {source.pk} at call {from_ordinal} by {actor}"
    user = Actor.of(actor).user_id
    return Execution(
        workflow_name=source.workflow_name,
        version=source.version,
        queue=source.queue,
        priority=source.priority,
        max_crashes=source.max_crashes,
        input=source.input,
        subject_type_id=source.subject_type_id,
        subject_id=source.subject_id,
        origin_id=source.origin_id or source.pk,
        origin_at=source.origin_at or source.created_at,
        started_by=source.started_by if user is None else user,
        note=codec.storable_text(told + (f": {reason}" if reason else ""), 1_000),
    )
