"""pgjobs itself, in the environment of this project."""

import os
import sys
from collections.abc import Iterable

import django

from example_project.benchmark.peers import program

os.environ.update(
    DJANGO_SETTINGS_MODULE="example_project.settings", DATABASE_URL=program.database(), DEBUG="False"
)
os.environ.setdefault("SECRET_KEY", "benchmark")
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402

from example_project.benchmark.jobs import noop, noted  # noqa: E402
from example_project.benchmark.workflows import counting  # noqa: E402
from example_project.demo.crew import MANAGE  # noqa: E402

# No pooler is before the server of a benchmark.
connection.settings_dict["OPTIONS"]["prepare_threshold"] = 5


def prepare() -> None:
    call_command("migrate", "pgjobs", verbosity=0, interactive=False)


def single(numbers: Iterable[int]) -> float:
    return program.timed(lambda: [noted.enqueue(number=number) for number in numbers])


def bulk(count: int) -> float:
    return program.timed(lambda: noop.enqueue_many([{}] * count))


def flows(executions: int, steps: int) -> float:
    return program.timed(lambda: [counting.start(steps=steps) for _ in range(executions)])


def work() -> None:
    command = ["runworkers", "--queues", program.QUEUE, "--processes", "1"]
    command += ["--concurrency", str(program.concurrency())]
    os.execv(sys.executable, [sys.executable, str(MANAGE), *command])


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single, flows=flows)
