"""django-ox: its own worker with a pool of threads, and its own call for many."""

from collections.abc import Iterable

from django.core.management import call_command

from example_project.benchmark.peers import program
from example_project.benchmark.peers.programs import django_site

django_site.configure("django_ox", "django_ox.backend.OxBackend")

from django_ox.bulk import enqueue_many  # noqa: E402

from example_project.benchmark.peers.programs.django_noops import arrival, noop  # noqa: E402


def prepare() -> None:
    call_command("migrate", verbosity=0)


def single(numbers: Iterable[int]) -> float:
    return program.timed(lambda: [arrival.enqueue(number) for number in numbers])


def bulk(count: int) -> float:
    return program.timed(lambda: enqueue_many(noop, [((), {})] * count))


def work() -> None:
    call_command("ox_worker", concurrency=program.concurrency(), verbosity=0)


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single)
