"""Step outputs: written once under the fence, many executions' in one statement."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections

from pgjobs.connections import rows
from pgjobs.exceptions import LeaseLost
from pgjobs.leases.fence import GIVEN, as_given, held_rows
from pgjobs.leases.states import Lease


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step on its way into the journal."""

    lease: Lease
    step_id: str
    kind: str
    ordinal: int
    arguments_hash: str
    output: str | None
    """JSON text."""
    error: str | None = None
    attempts: int = 1
    seconds: float = 0.0
    clears_crashes: bool = False
    """The first new checkpoint since the last crash: the execution is making progress again."""


# Fence: the execution's id, status and token, under its lock. Locks: in id order, skipping: an execution that a
# transaction of the project's holds (it has signalled, say) is left for later, and the others are written.
# A row that is there already was written by this same holder, whose reply was lost: it is answered, not changed.
_RECORD = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(tokens)s::uuid[], %(step_ids)s::text[], %(kinds)s::text[], %(ordinals)s::int[],
        %(hashes)s::text[], %(outputs)s::text[], %(errors)s::text[], %(attempts)s::int[], %(seconds)s::float8[]
    ) AS given(id, token, step_id, kind, ordinal, arguments_hash, output, error, attempts, seconds)
),
held AS MATERIALIZED (
    SELECT leased.id FROM pgjobs_execution AS leased
    WHERE leased.id = ANY(%(ids)s::bigint[]) AND leased.status = 'running'
      AND EXISTS (SELECT FROM given WHERE given.id = leased.id AND given.token = leased.lease_token)
    ORDER BY leased.id FOR NO KEY UPDATE SKIP LOCKED
),
written AS (
    INSERT INTO pgjobs_stepoutput (execution_id, step_id, kind, ordinal, arguments_hash, output, output_bytes,
                                   error, attempts, seconds, recorded_at)
    SELECT given.id, given.step_id, given.kind, given.ordinal, given.arguments_hash, given.output::jsonb,
           COALESCE(octet_length(given.output), 0), given.error::jsonb, given.attempts, given.seconds,
           clock_timestamp()
    FROM given JOIN held USING (id)
    ORDER BY given.id, given.step_id
    ON CONFLICT (execution_id, step_id) DO NOTHING
    RETURNING execution_id, step_id, recorded_at
)
SELECT execution_id, step_id, recorded_at FROM written
UNION ALL
SELECT old.execution_id, old.step_id, old.recorded_at
FROM pgjobs_stepoutput AS old JOIN given ON given.id = old.execution_id AND given.step_id = old.step_id
JOIN held ON held.id = old.execution_id"""

_STILL_HELD = (
    f"WITH given AS MATERIALIZED (SELECT * FROM {GIVEN}) {held_rows('pgjobs_execution', locking='OFFSET 0')}"  # noqa: S608
)

_CLEAR_CRASHES = """
UPDATE pgjobs_execution SET crash_count = 0
WHERE id = %(id)s AND status = 'running' AND lease_token = %(token)s AND crash_count > 0"""


def record(steps: Sequence[StepRow], *, using: str) -> dict[tuple[int, str], dt.datetime]:
    """Write ``steps`` and return when each was recorded; one that is missing is :func:`still_held`, or lost."""
    params: dict[str, Any] = {
        **as_given(step.lease for step in steps),
        "step_ids": [step.step_id for step in steps],
        "kinds": [step.kind for step in steps],
        "ordinals": [step.ordinal for step in steps],
        "hashes": [step.arguments_hash for step in steps],
        "outputs": [step.output for step in steps],
        "errors": [step.error for step in steps],
        "attempts": [step.attempts for step in steps],
        "seconds": [step.seconds for step in steps],
    }
    recorded = {(pk, step_id): at for pk, step_id, at in rows(using, _RECORD, params)}
    for step in steps:
        if step.clears_crashes and (step.lease.pk, step.step_id) in recorded:
            rows(using, _CLEAR_CRASHES, {"id": step.lease.pk, "token": step.lease.token})
    return recorded


def still_held(steps: Sequence[StepRow], *, using: str) -> set[int]:
    """Of executions whose step was not written: those that this worker holds all the same, but that are locked."""
    params = as_given(step.lease for step in steps)
    return {pk for (pk,) in rows(using, _STILL_HELD, params)}


def record_here(step: StepRow, *, using: str) -> dt.datetime:
    """Write one step in the caller's transaction. Raises :class:`LeaseLost`."""
    assert connections[using].in_atomic_block, "a step is recorded with its effects, not beside them"
    recorded = record([step], using=using)
    try:
        return recorded[step.lease.pk, step.step_id]
    except KeyError:
        raise LeaseLost("execution", step.lease.pk) from None
