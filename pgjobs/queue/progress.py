"""Progress of running jobs: the latest values of one process, in one fenced statement."""

from __future__ import annotations

from collections.abc import Sequence

from pgjobs.connections import rows
from pgjobs.leases.states import RUNNING, Lease

# running -> running. Fence: id, status, token. Locks: in id order, skipping a row that is just being finished.
_WRITE = f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::uuid[], %(values)s::text[]) AS given(id, token, value)
),
held AS MATERIALIZED (
    SELECT job.id, given.value FROM pgjobs_job AS job JOIN given ON given.id = job.id
    WHERE job.status = '{RUNNING}' AND job.lease_token = given.token
    ORDER BY job.id FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE pgjobs_job AS job SET progress = held.value::jsonb
FROM held WHERE job.id = held.id"""  # noqa: S608 - constants only


def write_progress(told: Sequence[tuple[Lease, str]], *, using: str) -> None:
    """Write (lease, JSON text) pairs; those whose lease is gone change nothing."""
    params = {
        "ids": [lease.pk for lease, _ in told],
        "tokens": [lease.token for lease, _ in told],
        "values": [value for _, value in told],
    }
    rows(using, _WRITE, params)
