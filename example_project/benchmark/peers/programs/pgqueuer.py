"""PgQueuer: its asyncpg driver and its own runner, as its quick start has it."""

import asyncio
from collections.abc import Iterable

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from example_project.benchmark.peers import program


async def runner() -> PgQueuer:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(program.database())))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        """No work at all."""

    @queuer.entrypoint("arrival")
    async def arrival(job: Job) -> None:
        program.arrived(int(job.payload or b"0"))

    return queuer


def prepare() -> None:
    async def install() -> None:
        connection = await asyncpg.connect(program.database())
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    asyncio.run(install())


def single(numbers: Iterable[int]) -> float:
    async def enqueue() -> float:
        connection = await asyncpg.connect(program.database())
        queries = Queries(AsyncpgDriver(connection))
        clock = asyncio.get_running_loop().time
        began = clock()
        for number in numbers:
            await queries.enqueue("arrival", str(number).encode())
        seconds = clock() - began
        await connection.close()
        return seconds

    return asyncio.run(enqueue())


def bulk(count: int) -> float:
    async def enqueue() -> float:
        connection = await asyncpg.connect(program.database())
        queries = Queries(AsyncpgDriver(connection))
        clock = asyncio.get_running_loop().time
        began = clock()
        await queries.enqueue(["noop"] * count, [None] * count, [0] * count)
        seconds = clock() - began
        await connection.close()
        return seconds

    return asyncio.run(enqueue())


def work() -> None:
    # What `pgq run` does. That command itself fails to start with some releases of its command line library.
    async def run() -> None:
        queuer = await runner()
        # The number of jobs at a time has a cap only from twice the batch up, so the batch is the number.
        await queuer.run(batch_size=int(program.variant() or program.concurrency()))

    uvloop.run(run())


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single)
