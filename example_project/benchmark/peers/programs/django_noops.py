"""Tasks of the Django entrants: a module of their own, since a task is stored under its module's name."""

from importlib.util import find_spec

from example_project.benchmark.peers import program

if find_spec("django.tasks"):
    from django.tasks import task
else:
    from django_tasks import task


@task()
def noop() -> None:
    """No work at all."""


@task()
def arrival(number: int) -> None:
    program.arrived(number)
