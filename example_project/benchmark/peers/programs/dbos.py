"""DBOS: a job is an enqueued workflow; steps are checkpointed steps of one workflow."""

import signal
from collections.abc import Iterable

from dbos import DBOS, DBOSConfig

from example_project.benchmark.peers import program

# It looks for work only so often, and takes as much as the bound allows: ten a second with its default of 1 s.
POLL_SECONDS = 0.05


@DBOS.workflow(name="noop")
def noop() -> None:
    """No work at all."""


@DBOS.workflow(name="arrival")
def arrival(number: int) -> None:
    program.arrived(number)


@DBOS.step(name="step")
def step(number: int) -> int:
    return number


@DBOS.workflow(name="flow")
def flow(steps: int) -> int:
    return sum(step(number) for number in range(steps))


def launch(*, working: bool = False) -> None:
    config: DBOSConfig = {
        "name": "benchmark",
        "system_database_url": program.database(),
        "application_version": "1",
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.listen_queues([program.QUEUE] if working else [])
    DBOS.launch()


def prepare() -> None:
    launch()
    if program.variant() == "unbounded":
        DBOS.register_queue(program.QUEUE)
    else:
        DBOS.register_queue(
            program.QUEUE, worker_concurrency=program.concurrency(), polling_interval_sec=POLL_SECONDS
        )
    DBOS.destroy()


def single(numbers: Iterable[int]) -> float:
    launch()
    seconds = program.timed(
        lambda: [DBOS.enqueue_workflow(program.QUEUE, arrival, number) for number in numbers]
    )
    DBOS.destroy()
    return seconds


def bulk(count: int) -> float:
    """One call a job: there is none for many."""
    launch()
    seconds = program.timed(lambda: [DBOS.enqueue_workflow(program.QUEUE, noop) for _ in range(count)])
    DBOS.destroy()
    return seconds


def flows(executions: int, steps: int) -> float:
    launch()
    seconds = program.timed(
        lambda: [DBOS.enqueue_workflow(program.QUEUE, flow, steps) for _ in range(executions)]
    )
    DBOS.destroy()
    return seconds


def work() -> None:
    launch(working=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    DBOS.destroy()


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single, flows=flows)
