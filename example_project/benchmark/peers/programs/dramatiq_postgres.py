"""Dramatiq on its PostgreSQL broker, run by Dramatiq's own command."""

from collections.abc import Iterable

import dramatiq
import psycopg
from dramatiq_postgres import PostgresBroker
from dramatiq_postgres.schema import init
from psycopg.conninfo import conninfo_to_dict

from example_project.benchmark.peers import program

NAME = "example_project.benchmark.peers.programs.dramatiq_postgres"
# As parts: it takes a URL apart itself, and one without a host, for a socket, does not survive that.
dramatiq.set_broker(PostgresBroker(url=conninfo_to_dict(program.database())))


@dramatiq.actor(queue_name=program.QUEUE)
def noop() -> None:
    """No work at all."""


@dramatiq.actor(queue_name=program.QUEUE)
def arrival(number: int) -> None:
    program.arrived(number)


def prepare() -> None:
    with psycopg.connect(program.database(), autocommit=True) as connection:
        init(connection.cursor())


def single(numbers: Iterable[int]) -> float:
    return program.timed(lambda: [arrival.send(number) for number in numbers])


def bulk(count: int) -> float:
    """One call a message: there is none for many."""
    return program.timed(lambda: [noop.send() for _ in range(count)])


def work() -> None:
    program.become("dramatiq", "--processes", "1", "--threads", str(program.concurrency()), NAME)


if __name__ == "__main__":
    program.main(prepare=prepare, work=work, bulk=bulk, single=single)
