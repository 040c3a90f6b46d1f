"""Jobs in the state that a test starts from. Status is set by verbs; only times are moved by hand."""

import uuid
from collections.abc import Sequence
from typing import Any

from django.db.models import F
from django.db.models.functions import Now

from pgjobs.leases.lanes import Position
from pgjobs.leases.states import Lease
from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.queue.claiming import claim_jobs
from pgjobs.queue.models import Job
from pgjobs.queue.outcomes import Outcome, Problem
from pgjobs.queue.settle import settle
from tests.support.own_database import QUEUE, connection

KIND = "tests.work"
PROBLEM = Problem("error", "ValueError", "no luck", "Traceback …")


def pending(count: int = 1, **columns: Any) -> list[int]:
    """Inserts jobs and returns their ids, ascending."""
    jobs = Job.objects.bulk_create([Job(**{"job_type": KIND, **columns}) for _ in range(count)])
    return sorted(job.pk for job in jobs)


def claim(
    limit: int = 1,
    *,
    owner: str = "worker-a",
    token: uuid.UUID | None = None,
    lease_seconds: float = 60,
    kinds: Sequence[str] = (KIND,),
    queues: Sequence[str] = (),
    suspects: bool = False,
    position: Position | None = None,
) -> list[ClaimedJob]:
    return claim_jobs(
        owner=owner,
        token=token or uuid.uuid4(),
        limit=limit,
        lease_seconds=lease_seconds,
        names=kinds,
        queues=queues,
        suspects=suspects,
        position=position,
        using=QUEUE,
    )


def claim_ids(limit: int = 1, **options: Any) -> list[int]:
    return [job.lease.pk for job in claim(limit, **options)]


def running(owner: str = "worker-a", **columns: Any) -> ClaimedJob:
    """One job in `owner`'s hands."""
    [pk] = pending(**columns)
    make_due(pk)
    found = claim(
        10_000, owner=owner, kinds=[columns.get("job_type", KIND)], suspects=columns.get("crash_count", 0) > 0
    )
    [job] = [job for job in found if job.lease.pk == pk]
    return job


def end(job: ClaimedJob, outcome: Outcome) -> set[int]:
    return settle([Ended(job, outcome)], using=QUEUE)


def stranger(job: ClaimedJob) -> Lease:
    """A lease on the same row under a token that was never given out."""
    return Lease(job.lease.pk, uuid.uuid4(), job.lease.owner)


def lapse(*ids: int, seconds: float = 5) -> None:
    """Moves the end of leases into the past, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET lease_expires_at = clock_timestamp() - make_interval(secs => %s)"
            " WHERE id = ANY(%s) AND status = 'running'",
            [seconds, list(ids)],
        )


def make_due(*ids: int) -> None:
    """Lets delays be over."""
    Job.objects.filter(pk__in=ids, available_at__gt=Now()).update(available_at=F("created_at"))


def columns(pk: int, *names: str) -> Any:
    """The values of one row: one value, or a tuple of several."""
    row = Job.objects.values_list(*names).get(pk=pk)
    return row[0] if len(names) == 1 else row


def whole_row(pk: int) -> dict[str, Any]:
    return Job.objects.filter(pk=pk).values().get()
