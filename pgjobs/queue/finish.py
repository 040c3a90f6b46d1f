"""Finish: a handler's own effects and the success of its job in one short, fenced transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now

from pgjobs.connections import still_in_transaction
from pgjobs.exceptions import AlreadyProduced, CommitLost, PgJobsError
from pgjobs.leases.fence import as_json, hold_in, leave
from pgjobs.queue.attempts import ClaimedJob
from pgjobs.queue.awaited import announce
from pgjobs.queue.models import Job
from pgjobs.queue.results import produce
from pgjobs.queue.states import JobStatus


@contextmanager
def finishing(
    job: ClaimedJob, result: str | None, *, using: str, keep_trying: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """A transaction on the handler's connection that ends with the job succeeded.

    The row is locked under its lease before the block runs, so a holder that lost it does no work here, and
    nobody can take the lease while the block runs. An outage before the block is waited out for as long as
    ``keep_trying`` says. Raises :class:`LeaseLost`; :class:`AlreadyProduced` instead of running the block when
    the key has a result; :class:`CommitLost` when the commit did not happen.
    """
    connection = connections[using]
    if connection.in_atomic_block or not _autocommits(connection):
        raise PgJobsError(
            f"job {job.lease.pk}: ctx.finish() opens its own transaction, but one is open on {using!r} already. "
            f"Leave your atomic() block (and turn autocommit on) first, or put the writes inside ctx.finish()."
        )
    committed: list[bool] = []
    with ExitStack() as opened:
        number = hold_in(opened, Job, job.lease, using=using, keep_trying=keep_trying)
        session = connection.connection
        if job.idempotency_key and not produce(
            job.lease.owner, [(job.idempotency_key, job.lease.pk, result)], using=using
        ):
            raise AlreadyProduced(job.idempotency_key, job.lease.pk)
        yield
        if not still_in_transaction(using, session, number):
            raise CommitLost(job.lease.pk)
        leave(
            Job,
            job.lease,
            to=JobStatus.SUCCEEDED,
            using=using,
            completed_at=Now(),
            completed_by=job.lease.owner,
            note="",
            result=as_json(result),
        )
        if job.awaited:
            announce([job.lease.pk], using)
        transaction.on_commit(lambda: committed.append(True), using=using)
    if not committed:
        raise CommitLost(job.lease.pk)


def _autocommits(connection: BaseDatabaseWrapper) -> bool:
    """Not ``get_autocommit()``: that connects, and an outage is waited out further on."""
    if connection.connection is None:
        return bool(connection.settings_dict["AUTOCOMMIT"])
    return connection.autocommit
