"""``manage.py benchmark``: measurements of pgjobs on this machine, beside the marks it is built for."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.benchmark import drain, enqueuing, idle, machine, pickup
from example_project.benchmark.bench import Bench, Measurement, Sizes, take
from example_project.benchmark.figures import as_rows
from example_project.benchmark.fleet import Fleet
from example_project.benchmark.ground import GroundRefused, given_url, own_schema, server
from example_project.benchmark.unwinding import signals_unwind
from example_project.demo.crew import DemoError
from example_project.demo.tables import aligned
from example_project.demo.target import pointed_at
from example_project.postgres import PostgresUnavailable

SCHEMA = "pgjobs_benchmark"
MEASUREMENTS: dict[str, Measurement] = {
    "drain": drain.measure,
    "enqueue": enqueuing.measure,
    "pickup": pickup.measure,
    "idle": idle.measure,
}


class Command(BaseCommand):
    help = (
        "Measures pgjobs: no-op jobs a second, claim and pick-up latency, enqueue rates, an idle worker's cost. "
        "On an embedded PostgreSQL, or on DATABASE_URL in a schema of its own that is dropped at the end."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        sizes = Sizes()
        add = parser.add_argument
        add("--database-url", metavar="URL", help="measure on this server instead of an embedded one")
        add("--json", type=Path, metavar="FILE", help="write the values and the machine there as well")
        add("--only", metavar="NAMES", help=f"some of {','.join(MEASUREMENTS)}")
        add("--jobs", type=int, default=sizes.jobs, help=f"to drain (default {sizes.jobs})")
        add("--processes", type=int, default=sizes.processes, help="of the drain (default 1)")
        add("--concurrency", type=int, default=sizes.concurrency, help="of each process (default 10)")
        add("--singles", type=int, default=sizes.singles, help=f"single enqueues (default {sizes.singles})")
        add("--bulk", type=int, default=sizes.bulk, help=f"jobs of one enqueue_many (default {sizes.bulk})")
        add("--pickups", type=int, default=sizes.pickups, help=f"default {sizes.pickups}")
        add("--idle-seconds", type=float, default=sizes.idle_seconds, help=f"default {sizes.idle_seconds:g}")

    def handle(self, *args: Any, **options: Any) -> None:
        sizes = Sizes(**{name: options[name] for name in Sizes.__dataclass_fields__})
        for name, value in vars(sizes).items():
            if value <= 0:
                raise CommandError(f"--{name.replace('_', '-')} is {value}; it must be above 0.")
        chosen = _chosen(options["only"])
        try:
            self._measure(chosen, sizes, options["database_url"], options["json"])
        except (GroundRefused, DemoError, PostgresUnavailable, psycopg.OperationalError) as error:
            raise CommandError(str(error)) from error

    def _measure(
        self, chosen: dict[str, Measurement], sizes: Sizes, given: str | None, json_file: Path | None
    ) -> None:
        with signals_unwind(), ExitStack() as stack:
            url = stack.enter_context(
                own_schema(stack.enter_context(server(given_url(given), SCHEMA)), SCHEMA)
            )
            fleet = stack.enter_context(Fleet())
            stack.enter_context(pointed_at(url, fleet.folder / "media", page_delay=0))
            with psycopg.connect(url, autocommit=True) as connection:
                told = machine.describe(connection)
            values = take(chosen, Bench(fleet, fleet.folder, sizes), self._say)
        self._print(told, sizes, values)
        if json_file is not None:
            document = {"machine": told, "settings": vars(sizes), "values": values}
            json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    def _print(self, told: dict[str, str], sizes: Sizes, values: dict[str, float]) -> None:
        settings = ", ".join(f"{name} {value:g}" for name, value in vars(sizes).items())
        for label, text in {**told, "sizes": settings}.items():
            self.stdout.write(f"{label:>16}  {text}")
        self.stdout.write("")
        for line in aligned(["measured", "value", "unit", "mark", ""], as_rows(values)):
            self.stdout.write(f"  {line}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _chosen(only: str | None) -> dict[str, Measurement]:
    names = [name.strip() for name in only.split(",")] if only else list(MEASUREMENTS)
    if unknown := set(names) - set(MEASUREMENTS):
        raise CommandError(f"--only {unknown.pop()!r} is unknown; it can be {', '.join(MEASUREMENTS)}.")
    return {name: MEASUREMENTS[name] for name in names}
