"""What the tests of the worker look at: rows, deeds, sessions and clocks of the database."""

from collections.abc import Iterable

from pgjobs.models import Job
from pgjobs.queue.states import TERMINAL
from tests.jobsapp.models import Effect
from tests.support.own_database import connection
from tests.support.waiting import wait_until


def row(pk: int) -> Job:
    """The job as it stands now."""
    return Job.objects.get(pk=pk)


def deeds(key: str) -> list[Effect]:
    """Everything that was done under the key, in order."""
    return list(Effect.objects.filter(key=key))


def wait_for_deed(key: str, timeout: float = 30.0) -> Effect:
    """The first deed under the key, once there is one."""
    return wait_until(lambda: Effect.objects.filter(key=key).first(), timeout, f"the deed {key!r}")


def wait_ended(jobs: Iterable[Job | int], timeout: float = 60.0) -> dict[int, Job]:
    """The jobs by id, once each of them has come to an end."""
    ids = [job if isinstance(job, int) else job.pk for job in jobs]

    def open_jobs() -> list[tuple[object, ...]]:
        left = Job.objects.filter(pk__in=ids).exclude(status__in=TERMINAL)
        return list(left.values_list("pk", "job_type", "status", "attempt_count", "last_error"))

    wait_until(lambda: not open_jobs(), timeout, lambda: f"the end of {open_jobs()}")
    return Job.objects.in_bulk(ids)


def sessions(application: str) -> dict[int, str]:
    """Server process id and latest statement of each session under this application name."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, query FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()",
            [application],
        )
        return dict(cursor.fetchall())


def database_says(question: str, *values: object) -> object:
    """The one value that an SQL expression has."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {question}", values)
        return cursor.fetchone()[0]
