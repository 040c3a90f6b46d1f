"""Procrastinate: async tasks, since its guide on concurrency says not to use sync ones with it."""

import asyncio
from collections.abc import Iterable

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from example_project.benchmark.peers import program

NAME = "example_project.benchmark.peers.programs.procrastinate"
app = App(connector=PsycopgConnector(conninfo=program.database()))


@app.task(queue=program.QUEUE, name="noop")
async def noop() -> None:
    """No work at all."""


@app.task(queue=program.QUEUE, name="arrival")
async def arrival(number: int) -> None:
    program.arrived(number)


def prepare() -> None:
    with app.replace_connector(SyncPsycopgConnector(conninfo=program.database())) as sync, sync.open():
        sync.schema_manager.apply_schema()


def single(numbers: Iterable[int]) -> float:
    with app.replace_connector(SyncPsycopgConnector(conninfo=program.database())) as sync, sync.open():
        task = sync.tasks["arrival"]
        return program.timed(lambda: [task.defer(number=number) for number in numbers])


def bulk(count: int) -> float:
    async def defer() -> float:
        async with app.open_async():
            clock = asyncio.get_running_loop().time
            began = clock()
            await noop.batch_defer_async(*[{}] * count)
            return clock() - began

    return asyncio.run(defer())


def work() -> None:
    program.become(
        "procrastinate", f"--app={NAME}.app", "--log-level", "warning",
        "worker", "-q", program.QUEUE, "-c", str(program.concurrency()),
    )  # fmt: skip


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single)
