"""Results by idempotency key: the first producer's effect is the only one."""

from __future__ import annotations

from pgjobs.connections import rows

# Written only while the writer holds the job's row under its lease. In key order, so that two writers of
# overlapping keys wait for each other rather than deadlock.
_PRODUCE = """
INSERT INTO pgjobs_jobresult (idempotency_key, job_id, produced_by, result)
SELECT given.key, given.job_id, %(worker)s, given.result::jsonb
FROM unnest(%(keys)s::text[], %(ids)s::bigint[], %(results)s::text[]) AS given(key, job_id, result)
ORDER BY given.key
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING job_id"""


def produce(worker: str, wanted: list[tuple[str, int, str | None]], *, using: str) -> set[int]:
    """Store (key, job id, result as JSON text) and return the ids of the jobs that came first under their key.

    Waits for a rival that has stored the same key and not yet committed. Must run in the transaction that
    settles the jobs, after their rows were locked under the fence.
    """
    params = {
        "worker": worker,
        "keys": [key for key, _, _ in wanted],
        "ids": [pk for _, pk, _ in wanted],
        "results": [result for _, _, result in wanted],
    }
    return {pk for (pk,) in rows(using, _PRODUCE, params)}
