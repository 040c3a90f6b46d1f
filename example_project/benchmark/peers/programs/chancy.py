"""Chancy: its asynchronous executor, the one its guide names for very many small jobs."""

import asyncio
import logging
from collections.abc import Iterable

from chancy import Chancy, Queue, Worker, job

from example_project.benchmark.peers import program


@job(queue=program.QUEUE)
async def noop() -> None:
    """No work at all."""


@job(queue=program.QUEUE)
async def arrival(*, number: int) -> None:
    program.arrived(number)


def prepare() -> None:
    async def declare() -> None:
        async with Chancy(program.database()) as chancy:
            await chancy.migrate()
            await chancy.declare(
                Queue(
                    program.QUEUE,
                    concurrency=program.concurrency(),
                    executor=Chancy.Executor.Async,
                    eager_polling=True,
                )
            )

    asyncio.run(declare())


def single(numbers: Iterable[int]) -> float:
    with Chancy(program.database()) as chancy:
        return program.timed(
            lambda: [chancy.sync_push(arrival.job.with_kwargs(number=number)) for number in numbers]
        )


def bulk(count: int) -> float:
    with Chancy(program.database()) as chancy:
        return program.timed(lambda: list(chancy.sync_push_many([noop.job] * count)))


def work() -> None:
    async def run() -> None:
        log = logging.getLogger("chancy")  # without a handler of its own that tells of each job
        async with Chancy(program.database(), log=log) as chancy, Worker(chancy) as worker:
            await worker.wait_for_shutdown()

    asyncio.run(run())


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single)
