"""Retention: ended executions leave the live tables after a time, to the archive or for good."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import partial

from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.workflows.batches import handle_all
from pgjobs.workflows.states import ExecutionStatus

_S = ExecutionStatus

# Kept: what a person has yet to decide, a parent whose children are still here (they go first), and a child
# whose end a live parent has not taken note of.
_KEPT = """
    EXISTS (SELECT FROM pgjobs_wait AS wait
            WHERE wait.execution_id = ended.id AND wait.kind = 'approval' AND wait.resolved_at IS NULL)
 OR EXISTS (SELECT FROM pgjobs_execution AS child WHERE child.parent_id = ended.id)
 OR EXISTS (SELECT FROM pgjobs_wait AS wait JOIN pgjobs_execution AS parent ON parent.id = wait.execution_id
            WHERE wait.target_id = ended.id AND wait.kind = 'child' AND wait.resolved_at IS NULL
              AND parent.status NOT IN ('succeeded', 'failed', 'cancelled'))"""

_ENDED = "ended.status IN ('cancelled', 'failed', 'succeeded')"

_OLD = f"""
SELECT ended.id, ended.completed_at FROM pgjobs_execution AS ended
WHERE ended.status = %(status)s AND {_ENDED}
  AND ended.completed_at < statement_timestamp() - make_interval(secs => %(seconds)s)
  AND (ended.completed_at, ended.id) > (%(completed_at)s::timestamptz, %(id)s)
  AND NOT ({_KEPT})
ORDER BY ended.completed_at, ended.id LIMIT %(limit)s"""  # noqa: S608

# Locks: executions only, skipping what others hold; a verb that holds one keeps it out of this batch. What was
# continued from a retired execution loses that link, so it is locked too, and its predecessor waits for it.
_RETIRE = f"""
WITH next AS MATERIALIZED (
    SELECT id FROM pgjobs_execution WHERE continued_from_id = ANY(%(ids)s::bigint[])
    ORDER BY id FOR UPDATE SKIP LOCKED
),
old AS MATERIALIZED (
    SELECT ended.id FROM pgjobs_execution AS ended
    WHERE ended.id = ANY(%(ids)s::bigint[]) AND {_ENDED} AND NOT ({_KEPT})
      AND NOT EXISTS (SELECT FROM pgjobs_execution AS follower
                      WHERE follower.continued_from_id = ended.id AND follower.id NOT IN (SELECT id FROM next))
    ORDER BY ended.id FOR UPDATE OF ended SKIP LOCKED
),
{{archived}}unlinked AS (
    UPDATE pgjobs_execution SET continued_from_id = NULL
    WHERE continued_from_id IN (SELECT id FROM old) AND id NOT IN (SELECT id FROM old)
),
no_messages AS (DELETE FROM pgjobs_message WHERE execution_id IN (SELECT id FROM old)),
no_waits AS (DELETE FROM pgjobs_wait WHERE execution_id IN (SELECT id FROM old)),
no_steps AS (DELETE FROM pgjobs_stepoutput WHERE execution_id IN (SELECT id FROM old))
DELETE FROM pgjobs_execution WHERE id IN (SELECT id FROM old) RETURNING id"""  # noqa: S608

_ARCHIVED = """archived AS (
    INSERT INTO pgjobs_archivedexecution (id, workflow_name, version, key, status, created_at, completed_at, story)
    SELECT ended.id, ended.workflow_name, ended.version, ended.key, ended.status, ended.created_at,
           ended.completed_at, jsonb_build_object(
        'execution', to_jsonb(ended),
        'continued_as', (SELECT id FROM pgjobs_execution WHERE continued_from_id = ended.id),
        'steps', (SELECT COALESCE(jsonb_agg(to_jsonb(step) ORDER BY step.id), '[]')
                  FROM pgjobs_stepoutput AS step WHERE step.execution_id = ended.id),
        'waits', (SELECT COALESCE(jsonb_agg(to_jsonb(wait) ORDER BY wait.id), '[]')
                  FROM pgjobs_wait AS wait WHERE wait.execution_id = ended.id),
        'messages', (SELECT COALESCE(jsonb_agg(to_jsonb(message) ORDER BY message.id), '[]')
                     FROM pgjobs_message AS message WHERE message.execution_id = ended.id))
    FROM pgjobs_execution AS ended JOIN old ON old.id = ended.id
),
"""

_BEGINNING = dt.datetime(2, 1, 1, tzinfo=dt.UTC)
_CENTURY = 3.2e9  # seconds; longer times would leave the range of timestamps


def kept_seconds() -> dict[str, float]:
    """By the end of an execution, how long it stays; ends that are missing stay for ever."""
    settings = get_settings()
    default = settings.workflow_retention_seconds
    given = {
        _S.SUCCEEDED: None,
        _S.FAILED: settings.workflow_retention_failed_seconds,
        _S.CANCELLED: settings.workflow_retention_cancelled_seconds,
    }
    kept = {status.value: default if own is None else own for status, own in given.items()}
    return {status: seconds for status, seconds in kept.items() if seconds is not None}


def retire(*, using: str, limit: int = 500) -> int:
    """Archive or delete up to ``limit`` executions that ended longer ago than the settings keep them; how many.

    The oldest of each end first, with their steps, waits and messages, in one transaction each. Nothing while the
    settings keep all. An execution that other tables still refer to is logged and kept.
    """
    sql = _RETIRE.format(archived=_ARCHIVED if get_settings().workflow_retention == "archive" else "")
    done = 0
    for status, seconds in kept_seconds().items():
        if done < limit:
            done += _retire_ended(status, min(seconds, _CENTURY), sql, using, limit - done)
    return done


def _retire_ended(status: str, seconds: float, sql: str, using: str, limit: int) -> int:
    """One batch of those that ended so; past batches of nothing but rows that cannot go."""
    done, position = 0, (_BEGINNING, 0)
    while not done:
        params = {"status": status, "seconds": seconds, "limit": limit}
        old = rows(using, _OLD, {**params, "completed_at": position[0], "id": position[1]})
        if not old:
            break
        position = (old[-1][1], old[-1][0])
        retiring = partial(_retire, sql=sql, using=using)
        done = handle_all([pk for pk, _ in old], retiring, label="ended execution", using=using)
    return done


def _retire(ids: Sequence[int], *, sql: str, using: str) -> int:
    # Foreign keys of other tables are checked at the commit, which is the caller's and counts as a refusal too.
    return len(rows(using, sql, {"ids": list(ids)}))
