"""Absurd: its synchronous client; a job is a task without steps."""

import signal
from collections.abc import Iterable
from typing import Any

import absurdctl
import psycopg
from absurd_sdk import Absurd

from example_project.benchmark.peers import program


def client() -> Absurd:
    app = Absurd(program.database(), queue_name=program.QUEUE)

    @app.register_task(name="noop")
    def noop(params: Any, context: Any) -> None:
        """No work at all."""

    @app.register_task(name="arrival")
    def arrival(params: Any, context: Any) -> None:
        program.arrived(params["number"])

    @app.register_task(name="flow")
    def flow(params: Any, context: Any) -> int:
        return sum(context.step(f"step {number}", lambda n=number: n) for number in range(params["steps"]))

    return app


def prepare() -> None:
    with psycopg.connect(program.database(), autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)  # what `absurdctl init` applies
    client().create_queue()


def single(numbers: Iterable[int]) -> float:
    app = client()
    return program.timed(lambda: [app.spawn("arrival", {"number": number}) for number in numbers])


def bulk(count: int) -> float:
    """One call a job: there is none for many."""
    app = client()
    return program.timed(lambda: [app.spawn("noop", {}) for _ in range(count)])


def flows(executions: int, steps: int) -> float:
    app = client()
    return program.timed(lambda: [app.spawn("flow", {"steps": steps}) for _ in range(executions)])


def work() -> None:
    app = client()
    signal.signal(signal.SIGTERM, lambda *_: app.stop_worker())
    app.start_worker(concurrency=program.concurrency())


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single, flows=flows)
