"""Waits: opened by the execution that waits, resolved once by whoever comes first, waking it in the same commit.

Lock order, everywhere: executions in the order of id, then their waits and messages. Whoever opens, resolves or
times out a wait holds the execution's row first, so no wake-up can fall between a look and a sleep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models.functions import Now

from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.queue.enqueue import CHANNEL
from pgjobs.workflows.models import Execution, Wait

# An execution needs waking when something it waits for is resolved: a single wait at once; a gather when it is
# whole, or when its rule is met or broken. Waking too often is harmless: it replays and waits again.
_WAKE = """
UPDATE pgjobs_execution AS execution
SET status = 'enqueued', available_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE execution.id = ANY(%(ids)s::bigint[]) AND execution.status = 'waiting'
  AND EXISTS (
    SELECT FROM pgjobs_wait AS wait
    WHERE wait.execution_id = execution.id AND wait.id = ANY(%(waits)s::bigint[])
      AND (wait."group" = '' OR (
        SELECT count(*) FILTER (WHERE peer.resolved_at IS NULL) = 0
            OR count(*) FILTER (WHERE peer.resolution ->> 'status' = 'succeeded')
               >= (wait.rule ->> 'min_successful')::int
            OR count(*) FILTER (WHERE peer.resolved_at IS NOT NULL
                                  AND peer.resolution ->> 'status' IS DISTINCT FROM 'succeeded')
               > COALESCE(count(*) - (wait.rule ->> 'min_successful')::int,
                          (wait.rule ->> 'tolerated_failures')::int)
        FROM pgjobs_wait AS peer
        WHERE peer.execution_id = wait.execution_id AND peer."group" = wait."group"))
  )
RETURNING execution.id"""

_JOBS_ENDED = """
UPDATE pgjobs_wait AS wait
SET resolved_at = clock_timestamp(),
    resolution = jsonb_build_object('status', job.status, 'result', job.result, 'job_id', job.id,
                                    'error', left(job.last_error, 2000))
FROM pgjobs_job AS job
WHERE wait.kind = 'job' AND wait.target_id = job.id AND wait.resolved_at IS NULL
  AND job.id = ANY(%(targets)s::bigint[])
RETURNING wait.execution_id, wait.id"""

_CHILDREN_ENDED = """
UPDATE pgjobs_wait AS wait
SET resolved_at = clock_timestamp(),
    resolution = jsonb_build_object('status', child.status, 'result', child.output, 'execution_id', child.id,
                                    'error', left(child.last_error, 2000))
FROM pgjobs_execution AS child
WHERE wait.kind = 'child' AND wait.target_id = child.id AND wait.resolved_at IS NULL
  AND child.id = ANY(%(targets)s::bigint[])
RETURNING wait.execution_id, wait.id"""

_WAITERS = """
SELECT execution.id FROM pgjobs_execution AS execution
WHERE execution.id IN (
    SELECT wait.execution_id FROM pgjobs_wait AS wait
    WHERE wait.target_id = ANY(%(targets)s::bigint[]) AND wait.kind = %(kind)s AND wait.resolved_at IS NULL)
ORDER BY execution.id FOR NO KEY UPDATE"""


def lock_executions(ids: Sequence[int], *, using: str) -> None:
    """Lock rows in the order of id, for the rest of the caller's transaction."""
    locked = (
        Execution._base_manager.using(using).filter(pk__in=ids).order_by("pk").select_for_update(no_key=True)
    )
    list(locked.values_list("pk"))


def wake(resolved: Sequence[tuple[int, int]], *, using: str) -> list[int]:
    """Make waiting executions claimable whose awaited thing has come: (execution id, wait id) pairs.

    Must run in the transaction that resolved the waits, with the executions locked. Idempotent.
    """
    if not resolved:
        return []
    params = {"ids": [execution for execution, _ in resolved], "waits": [wait for _, wait in resolved]}
    woken = [pk for (pk,) in rows(using, _WAKE, params)]
    if woken and get_settings().notify:
        rows(using, f"SELECT pg_notify('{CHANNEL}', '')", {})
    return woken


def jobs_ended(job_ids: Sequence[int], using: str) -> None:
    """Resolve the waits of ended jobs. Subscribed to the queue: runs in the transaction that settles them."""
    _targets_ended("job", _JOBS_ENDED, job_ids, using)


def children_ended(execution_ids: Sequence[int], using: str) -> None:
    """Resolve the waits of ended child executions, in the transaction that ends them."""
    _targets_ended("child", _CHILDREN_ENDED, execution_ids, using)


def resolve(wait_id: int, resolution: dict[str, Any], *, using: str, **columns: Any) -> bool:
    """Resolve one wait by compare-and-set; False when it was resolved before. The execution must be locked."""

    open_wait = Wait._base_manager.using(using).filter(pk=wait_id, resolved_at__isnull=True)
    return bool(open_wait.update(resolved_at=Now(), resolution=resolution, **columns))


def _targets_ended(kind: str, sql: str, targets: Sequence[int], using: str) -> None:
    params = {"targets": list(targets), "kind": kind}
    if rows(using, _WAITERS, params):
        resolved = [(execution, wait) for execution, wait in rows(using, sql, params)]
        wake(resolved, using=using)
