"""django-tasks-db: its worker runs one task at a time, so ten at a time is not to be had in one process."""

from collections.abc import Iterable

from django.core.management import call_command

from example_project.benchmark.peers import program
from example_project.benchmark.peers.programs import django_site

django_site.configure("django_tasks_db", "django_tasks_db.DatabaseBackend")

from example_project.benchmark.peers.programs.django_noops import arrival, noop  # noqa: E402


def prepare() -> None:
    call_command("migrate", verbosity=0)


def single(numbers: Iterable[int]) -> float:
    return program.timed(lambda: [arrival.enqueue(number) for number in numbers])


def bulk(count: int) -> float:
    """One call a task: there is none for many."""
    return program.timed(lambda: [noop.enqueue() for _ in range(count)])


def work() -> None:
    call_command("db_worker", queue_name="*", startup_delay=False, reload=False, verbosity=0)


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single)
