"""One run of the lab, from its own schema to its results; nothing of it stays in the database."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg

from example_project.benchmark import machine
from example_project.benchmark.fleet import Fleet
from example_project.benchmark.ground import GroundRefused, own_schema, server
from example_project.benchmark.unwinding import signals_unwind
from example_project.demo.target import pointed_at
from example_project.lab import activity, buried, crash, table, throughput
from example_project.lab.activity import Activity
from example_project.lab.buried import Depth, IndexSize
from example_project.lab.crash import Story
from example_project.lab.laboratory import Laboratory
from example_project.lab.plain_workers import PlainWorkers
from example_project.lab.plan import Plan
from example_project.lab.product import Product
from example_project.lab.progress import Progress
from example_project.lab.throughput import Cell, Handout

SCHEMA = "pgjobs_lab"


@dataclass(frozen=True)
class Results:
    """All that was measured, and on what."""

    plan: Plan
    machine: dict[str, str]
    cells: list[Cell]
    handouts: list[Handout]
    activities: list[Activity]
    depths: list[Depth]
    indexes: list[IndexSize]
    story: Story
    seconds: float
    """Of the whole run."""


def perform(plan: Plan, given: str | None, progress: Progress, *, i_know: bool) -> Results:
    """Every experiment. Raises GroundRefused, PostgresUnavailable, DemoError; SystemExit when a signal ends it."""
    if given is not None and not i_know:
        _require_own(given)
    with signals_unwind(), _laboratory(plan, given, progress) as lab:
        told = machine.describe(lab.connection)
        cells, handouts = throughput.measure(lab)
        activities = activity.measure(lab)
        depths, indexes = buried.measure(lab)
        story = crash.measure(lab)
        progress.step("clearing away", 1)
    return Results(plan, told, cells, handouts, activities, depths, indexes, story, progress.elapsed)


@contextmanager
def _laboratory(plan: Plan, given: str | None, progress: Progress) -> Iterator[Laboratory]:
    progress.step("starting", 3)
    logging.getLogger("pgjobs").setLevel(logging.ERROR)  # the reaper's warning is part of the story here
    with ExitStack() as stack:
        # Left in reverse: Django's connection, the lab's own, the processes, the schema, the server.
        url = stack.enter_context(own_schema(stack.enter_context(server(given, SCHEMA)), SCHEMA))
        fleet = stack.enter_context(Fleet())
        connection = stack.enter_context(
            psycopg.connect(url, autocommit=True, application_name="pgjobs_lab_main")
        )
        stack.enter_context(pointed_at(url, fleet.folder / "media", page_delay=0))
        table.create(connection)
        product = Product(connection, fleet)
        product.install()
        yield Laboratory(url, connection, fleet, PlainWorkers(fleet, url), product, plan, progress)


def _require_own(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT current_database()").fetchone()
    name = row[0] if row else ""
    if not name.startswith(SCHEMA):
        raise GroundRefused(
            f"The database {name!r} is not the lab's own: its name must begin with {SCHEMA!r}. Name another one "
            "with --database-url, unset DATABASE_URL to use an embedded server, or give --i-know: then the lab "
            f"loads this server, but works in the schema {SCHEMA!r} only and drops it at the end."
        )
