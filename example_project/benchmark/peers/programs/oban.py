"""oban-py: embedded in a process of its own, as its quick start has it."""

import asyncio
from collections.abc import Iterable

import psycopg
import uvloop
from oban import Oban, job
from oban.schema import install_sql

from example_project.benchmark.peers import program


@job(queue=program.QUEUE)
async def noop() -> None:
    """No work at all."""


@job(queue=program.QUEUE)
async def arrival(number: int) -> None:
    program.arrived(number)


def prepare() -> None:
    with psycopg.connect(program.database(), autocommit=True) as connection:
        connection.execute(install_sql())


def single(numbers: Iterable[int]) -> float:
    async def enqueue() -> float:
        pool = await Oban.create_pool(program.database())
        async with Oban(pool=pool) as oban:
            clock = asyncio.get_running_loop().time
            began = clock()
            for number in numbers:
                await oban.enqueue(arrival.new(number))
            seconds = clock() - began
        await pool.close()
        return seconds

    return asyncio.run(enqueue())


def bulk(count: int) -> float:
    async def enqueue() -> float:
        pool = await Oban.create_pool(program.database())
        async with Oban(pool=pool) as oban:
            clock = asyncio.get_running_loop().time
            began = clock()
            await oban.enqueue_many([noop.new() for _ in range(count)])
            seconds = clock() - began
        await pool.close()
        return seconds

    return asyncio.run(enqueue())


def work() -> None:
    async def run() -> None:
        pool = await Oban.create_pool(program.database())
        async with Oban(pool=pool, queues={program.QUEUE: program.concurrency()}):
            await asyncio.Event().wait()

    uvloop.run(run())  # as its command does


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single)
