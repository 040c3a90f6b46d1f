"""What a retry can open again: the jobs or the child with which a failed execution's last call failed.

Only the last call, and only while its failure is not recorded: what the body went on from is history. Waits are
reopened, never deleted. What timed out stays so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pgjobs.connections import rows
from pgjobs.queue.states import RETRYABLE
from pgjobs.workflows.states import ExecutionStatus, WaitKind, sources
from pgjobs.workflows.waits import children_ended, jobs_ended

_LAST_CALLS = """
WITH failed AS (
    SELECT id, last_error FROM pgjobs_execution WHERE id = ANY(%(ids)s::bigint[]) AND status = ANY(%(from)s::text[])
)
SELECT failed.id, wait.id, wait.step_id, wait.ordinal, wait.kind, wait."group", wait.target_id,
       (wait.rule ->> 'min_successful')::int, COALESCE((wait.rule ->> 'tolerated_failures')::int, 0),
       wait.resolved_at IS NOT NULL AND wait.resolution ->> 'status' IS DISTINCT FROM 'succeeded',
       COALESCE((wait.resolution ->> 'timeout')::boolean, false),
       CASE wait.kind WHEN 'job' THEN (SELECT status FROM pgjobs_job WHERE id = wait.target_id)
                      WHEN 'child' THEN (SELECT status FROM pgjobs_execution WHERE id = wait.target_id) END,
       failed.last_error
FROM failed JOIN pgjobs_wait AS wait ON wait.execution_id = failed.id
WHERE wait.kind <> 'sleep'
  AND NOT EXISTS (SELECT FROM pgjobs_stepoutput AS step
                  WHERE step.execution_id = failed.id AND step.ordinal >= wait.ordinal)
  AND NOT EXISTS (SELECT FROM pgjobs_wait AS later
                  WHERE later.execution_id = failed.id AND later.ordinal > wait.ordinal)
ORDER BY failed.id, wait.id"""

# The time that was given for it is given again.
_REOPEN = """
UPDATE pgjobs_wait
SET resolved_at = NULL, resolution = NULL, created_at = clock_timestamp(),
    wake_at = CASE WHEN isfinite(wake_at) THEN clock_timestamp() + (wake_at - created_at) ELSE wake_at END
WHERE id = ANY(%(waits)s::bigint[])"""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait of the last call, with what has become of its target."""

    execution: int
    id: int
    step_id: str
    ordinal: int
    kind: str
    group: str
    target: int | None
    least: int | None
    tolerated: int
    failed: bool
    timed_out: bool
    target_status: str | None
    last_error: str


@dataclass(slots=True)
class Reopening:
    """What a retry does to what failed executions awaited."""

    waits: list[int] = field(default_factory=list)
    jobs: dict[int, str] = field(default_factory=dict)
    """Targets of reopened waits, with their status."""
    children: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """Executions that a retry would change nothing for, and why."""

    def jobs_to_retry(self) -> list[int]:
        """Those that ended without success."""
        return [pk for pk, status in self.jobs.items() if status in RETRYABLE]

    def children_to_retry(self) -> list[int]:
        """Those that failed, however deep."""
        return [pk for pk, status in self.children.items() if status in sources("retry")]


def examine(ids: Iterable[int], *, using: str) -> Reopening:
    """What a retry of ``ids`` opens again, in them and in their failed children. Reads only."""
    found: dict[int, list[_Wait]] = {}
    level = set(ids)
    while level:
        params = {"ids": sorted(level), "from": sorted(sources("retry"))}
        waits = [_Wait(*row) for row in rows(using, _LAST_CALLS, params)]
        for wait in waits:
            found.setdefault(wait.execution, []).append(wait)
        level = {w.target for w in waits if w.kind == WaitKind.CHILD and w.failed and w.target} - found.keys()
    reopening = Reopening()
    for pk in ids:
        _examine(pk, found, reopening)
    return reopening


def reopen(reopening: Reopening, *, using: str) -> None:
    """Open the waits again; those whose target has succeeded since are resolved with its result at once.

    The executions and jobs must be locked, and the jobs be sent back to the queue.
    """
    if not reopening.waits:
        return
    rows(using, _REOPEN, {"waits": reopening.waits})
    succeeded = ExecutionStatus.SUCCEEDED.value
    jobs_ended([pk for pk, status in reopening.jobs.items() if status == succeeded], using)
    children_ended([pk for pk, status in reopening.children.items() if status == succeeded], using)


def _examine(pk: int, found: dict[int, list[_Wait]], into: Reopening) -> None:
    waits = found.get(pk, [])
    failed = [wait for wait in waits if wait.failed]
    open_again = []
    for wait in failed:
        if wait.kind == WaitKind.CHILD and not wait.timed_out and wait.target_status in sources("retry"):
            _examine(wait.target or 0, found, into)
        if _can_reopen(wait, into):
            open_again.append(wait)
    if _hopeless(waits, len(failed) - len(open_again)):
        if _ended_by(failed[0]):
            into.refused[pk] = _why(failed[0])
        return
    into.waits += [wait.id for wait in open_again]
    for wait in open_again:
        targets = into.jobs if wait.kind == WaitKind.JOB else into.children
        targets[wait.target or 0] = wait.target_status or ""


def _can_reopen(wait: _Wait, examined: Reopening) -> bool:
    if wait.timed_out or wait.target_status is None or wait.target in examined.refused:
        return False
    return wait.kind == WaitKind.JOB or wait.target_status != ExecutionStatus.CANCELLED


def _hopeless(waits: Sequence[_Wait], lost: int) -> bool:
    """Whether a call fails again with ``lost`` of its waits as they are."""
    if not lost:
        return False
    first = waits[0]
    return lost > (first.tolerated if first.least is None else len(waits) - first.least)


def _ended_by(wait: _Wait) -> bool:
    """Whether the execution ended with this call's exception; else the body went on to something else, which failed."""
    step_id = wait.group or wait.step_id
    marks = [f": {step_id!r}"]
    if wait.kind == WaitKind.CHILD:
        marks.append(f"ExecutionFailed: execution {wait.target} ended ")
    return any(mark in wait.last_error for mark in marks)


def _why(wait: _Wait) -> str:
    step_id = wait.group or wait.step_id
    if wait.timed_out:
        told = "timed out"
    elif wait.target_status is None:
        told = f"awaits {wait.kind} {wait.target}, which is no longer there"
    else:
        told = f"awaits {wait.kind} {wait.target}, which is {wait.target_status}"
    return f"{step_id!r} {told}, so nothing would change; fork it from call {wait.ordinal} to ask anew"
