"""Ended jobs of any age, and the months of the archive."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connection

from pgjobs.models import ArchivedJob, Job
from pgjobs.queue.partitions import months
from pgjobs.queue.retention import Policy, retire
from tests.faces.rows import make_job

DAY = 86_400.0
A_DAY = Policy(DAY, DAY, "archive")


def fetch(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def age(pk: int, days: float) -> None:
    """Moves a job's whole life into the past, by the database's clock."""
    fetch(
        "UPDATE pgjobs_job SET created_at = created_at - make_interval(secs => %s),"
        " completed_at = completed_at - make_interval(secs => %s) WHERE id = %s",
        days * DAY, days * DAY, pk,
    )  # fmt: skip


def old(status: str = "succeeded", days: float = 2, **columns: Any) -> Job:
    job = make_job(status, **columns)
    age(job.pk, days)
    return job


def ended_at(moment: str, **columns: Any) -> Job:
    return make_job("succeeded", created_at=moment, completed_at=datetime.fromisoformat(moment), **columns)


def live() -> set[int]:
    return set(Job.objects.values_list("pk", flat=True))


def archived() -> set[int]:
    return set(ArchivedJob.objects.values_list("pk", flat=True))


def archived_in(month: str) -> list[int]:
    """By the name of the partition that a row lies in."""
    name = f"pgjobs_archivedjob_y{month[:4]}m{month[4:]}"
    return [pk for (pk,) in fetch("SELECT id FROM pgjobs_archivedjob WHERE tableoid = %s::regclass", name)]


def pruned(policy: Policy = A_DAY) -> int:
    return retire(policy, using="default")


@contextmanager
def without_months() -> Iterator[None]:
    """An archive that has no partitions, before and after."""

    def drop() -> None:
        for month in months(using="default"):
            fetch(f"DROP TABLE pgjobs_archivedjob_y{month[:4]}m{month[4:]}")

    drop()
    yield
    drop()
