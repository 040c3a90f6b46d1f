"""The facts that pgjobs announces. A receiver that raises never harms a job: Django logs it (``django.dispatch``).

``sender`` is the job type's name for job signals and None for the others. Receivers run in the worker's own threads:
``job_started`` where the handler will (a slot's thread, or the event loop), ``job_settled``, ``lease_lost`` and
``rows_reaped`` in those that settle, renew and claim, whose work they hold up. They must be quick (count, log, put into
a queue) and must not use the database.
"""

from __future__ import annotations

from django.dispatch import Signal

job_started = Signal()
"""``job_id, attempt, worker``: a handler is about to be called."""
job_settled = Signal()
"""``job_id, attempt, worker, status, seconds, error``: the end of an attempt has been committed."""
lease_lost = Signal()
"""``label, pk, worker``: a write was refused because the row is somebody else's now."""
rows_reaped = Signal()
"""``label, requeued, exhausted``: leases of dead workers were taken back (lists of ids)."""
worker_started = Signal()
"""``name, pid``: a worker process begins to claim."""
worker_stopped = Signal()
"""``name, pid, released``: a worker process has ended in order, having handed back ``released`` rows."""


def heard(signal: Signal, sender: str) -> bool:
    """Whether anybody listens to ``signal`` of ``sender``: at no cost worth naming where nobody ever does."""
    return bool(signal.receivers) and signal.has_listeners(sender)
