"""``manage.py benchmark``: measurements of pgjobs on this machine, beside the marks it is built for, or its peers."""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.benchmark import machine
from example_project.benchmark.bench import Bench, Measurement, Sizes, take
from example_project.benchmark.catalogue import BASIC, FURTHER, SLOW
from example_project.benchmark.figures import as_rows
from example_project.benchmark.fleet import Fleet
from example_project.benchmark.ground import GroundRefused, given_url, own_schema, server
from example_project.benchmark.peers.run import Order, run
from example_project.benchmark.peers.run import chosen as chosen_peers
from example_project.benchmark.peers.turn import PARTS
from example_project.benchmark.unwinding import signals_unwind
from example_project.demo.crew import DemoError
from example_project.demo.tables import aligned
from example_project.demo.target import pointed_at
from example_project.postgres import PostgresUnavailable

SCHEMA = "pgjobs_benchmark"
MEASUREMENTS = BASIC | FURTHER | SLOW
SIZE_HELP = {
    "jobs": "no-op jobs to drain",
    "processes": "worker processes of the drain",
    "concurrency": "of each process",
    "singles": "single enqueues",
    "bulk": "jobs of one enqueue_many",
    "pickups": "lone jobs for an idle worker",
    "idle_seconds": "to watch an idle worker",
    "executions": "of a workflow at a time, with --peers or --all",
    "steps": "of each execution, with --peers or --all",
    "completed": "rows beneath, with --all",
    "future": "jobs of better priorities, with --all",
    "churn": "jobs behind a held snapshot, with --all",
    "slow_jobs": "on 16 workers, with --all",
    "slow_milliseconds": "of each slow job, with --all",
    "replayed": "steps of the history that is replayed, with --all",
    "sleepers": "sleeping executions beneath, with --all",
}
SMALLER_WITH_PEERS = {"jobs": 10_000, "pickups": 50, "idle_seconds": 5.0}


class Command(BaseCommand):
    help = (
        "Measures pgjobs: no-op jobs a second, claim and pick-up latency, enqueue rates, an idle worker's cost. "
        "On an embedded PostgreSQL, or on DATABASE_URL in a schema of its own that is dropped at the end. "
        "With --peers it measures other queues beside it, on databases of their own."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--database-url", metavar="URL", help="measure on this server instead of an embedded one")
        add("--json", type=Path, metavar="FILE", help="write the values and the machine there as well")
        add(
            "--only",
            metavar="NAMES",
            help=f"some of {','.join(MEASUREMENTS)}; with --peers of {','.join(PARTS)}",
        )
        add("--all", action="store_true", help=f"also {','.join(FURTHER)}")
        add("--slow", action="store_true", help=f"also {','.join(SLOW)}")
        for name, default in vars(Sizes()).items():
            few = SMALLER_WITH_PEERS.get(name)
            text = f"{SIZE_HELP[name]} (default {default:g}{f', with --peers {few:g}' if few else ''})"
            add(f"--{name.replace('_', '-')}", type=type(default), help=text)
        add(
            "--peers",
            metavar="NAMES",
            help="measure these queues beside pgjobs, or all; they are installed by pip",
        )
        add("--rounds", type=int, default=3, help="of everybody, with --peers (default 3)")
        add("--peer-dir", type=Path, default=Path(".peers"), help="keeps their environments (default .peers)")
        add("--csv", type=Path, metavar="FILE", help="write every round there, with --peers")
        add("--chart", type=Path, metavar="FILE", help="write one HTML page with charts there, with --peers")

    def handle(self, *args: Any, **options: Any) -> None:
        given = {name: options[name] for name in Sizes.__dataclass_fields__ if options[name] is not None}
        sizes = replace(Sizes(**(SMALLER_WITH_PEERS if options["peers"] else {})), **given)
        for name, value in [*vars(sizes).items(), ("rounds", options["rounds"])]:
            if value <= 0:
                raise CommandError(f"--{name.replace('_', '-')} is {value}; it must be above 0.")
        try:
            if options["peers"]:
                self._compare(sizes, options)
            else:
                self._measure(_chosen(options), sizes, options["database_url"], options["json"])
        except (GroundRefused, DemoError, PostgresUnavailable, psycopg.OperationalError) as error:
            raise CommandError(str(error)) from error

    def _compare(self, sizes: Sizes, options: dict[str, Any]) -> None:
        try:
            peers = chosen_peers(options["peers"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        order = Order(
            peers=peers,
            rounds=options["rounds"],
            folder=options["peer_dir"],
            database_url=options["database_url"],
            csv=options["csv"],
            page=options["chart"],
            parts=_named(options["only"], PARTS),
        )
        for line in run(order, sizes, self._say):
            self.stdout.write(line)

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


def _chosen(options: dict[str, Any]) -> dict[str, Measurement]:
    if not options["only"]:
        return BASIC | (FURTHER if options["all"] else {}) | (SLOW if options["slow"] else {})
    return {name: MEASUREMENTS[name] for name in _named(options["only"], list(MEASUREMENTS))}


def _named(only: str | None, known: Sequence[str]) -> Sequence[str]:
    """Those of ``known`` that were asked for; all when nothing was."""
    names = [name.strip() for name in only.split(",")] if only else known
    if unknown := set(names) - set(known):
        raise CommandError(f"--only {unknown.pop()!r} is unknown; it can be {', '.join(known)}.")
    return names
