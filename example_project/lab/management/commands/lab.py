"""``manage.py lab``: the experiment behind the design, on your own hardware."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.benchmark.ground import GroundRefused, given_url
from example_project.demo.crew import DemoError
from example_project.lab import output, report, screenshot
from example_project.lab.plan import QUICK, Plan
from example_project.lab.progress import Progress
from example_project.lab.run import perform
from example_project.lab.strategies import ALL
from example_project.postgres import PostgresUnavailable

SIZES = ("jobs", "milliseconds", "completed", "future", "dead", "job_seconds", "lease_seconds")


class Command(BaseCommand):
    help = (
        "Measures four ways to claim a job and pgjobs itself, a buried table and a crash; writes CSV files and "
        "report.html. On an embedded PostgreSQL, or on a database of the lab's own."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--quick", action="store_true", help="smaller everywhere; under 90 seconds on 2 cores")
        add(
            "--out",
            type=Path,
            default=Path("results"),
            metavar="DIR",
            help="for the results (default results)",
        )
        add("--database-url", metavar="URL", help="a database of the lab's own; default: an embedded server")
        add("--i-know", action="store_true", help="use a database that is not named pgjobs_lab...")
        add("--strategies", metavar="NAMES", help=f"some of {','.join(ALL)}")
        add("--workers", metavar="COUNTS", help="such as 1,2,4,8,16")
        add("--activity-milliseconds", metavar="LENGTHS", help="of jobs in the look at open transactions")
        add("--screenshot", type=Path, metavar="PNG", help="a picture of the report, by a headless Chromium")
        for name in SIZES:
            kind = float if "seconds" in name else int
            add(f"--{name.replace('_', '-')}", type=kind, help=f"default {getattr(Plan(), name):g}")

    def handle(self, *args: Any, **options: Any) -> None:
        plan = _plan(options)
        if options["screenshot"] is not None:
            _require_browser()  # now, and not after a quarter of an hour
        self.stdout.write(
            f"This should take about {_duration(plan.seconds())}. Ctrl-C ends it and clears away."
        )
        progress = Progress(sys.stdout, plan.seconds())
        try:
            given = given_url(options["database_url"])
            results = perform(plan, given, progress, i_know=options["i_know"])
            output.write(results, options["out"])
            page = report.write(results, options["out"])
            if options["screenshot"] is not None:
                screenshot.take(page, options["screenshot"])
        except (GroundRefused, DemoError, PostgresUnavailable, psycopg.OperationalError) as error:
            raise CommandError(str(error)) from error
        finally:
            progress.end()
        for sentence in report.summary(results):
            self.stdout.write(f"- {sentence}")
        self.stdout.write(f"{page} ({_duration(results.seconds)})")


def _plan(options: dict[str, Any]) -> Plan:
    """The full or the quick plan with what was given in its place. Raises CommandError for what makes no sense."""
    plan = QUICK if options["quick"] else Plan()
    given: dict[str, Any] = {name: options[name] for name in SIZES if options[name] is not None}
    for name, value in given.items():
        if value <= 0:
            raise CommandError(f"--{name.replace('_', '-')} is {value}; it must be above 0.")
    if options["strategies"]:
        given["strategies"] = _strategies(options["strategies"])
    if options["workers"]:
        given["workers"] = _numbers("--workers", options["workers"])
        given["activity_workers"] = min(max(given["workers"]), plan.activity_workers)
    if options["activity_milliseconds"]:
        given["activity_milliseconds"] = _numbers("--activity-milliseconds", options["activity_milliseconds"])
    if "lease_seconds" in given:
        given["heartbeat_seconds"] = given["lease_seconds"] * 0.3
    return replace(plan, **given)


def _require_browser() -> None:
    try:
        screenshot.browser()
    except DemoError as error:
        raise CommandError(str(error)) from error


def _strategies(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if unknown := [name for name in names if name not in ALL]:
        raise CommandError(f"--strategies {unknown[0]!r} is unknown; it can be {', '.join(ALL)}.")
    return names


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1:
        raise CommandError(f"{option} is {text!r}; give whole numbers above 0, such as 1,2,4.")
    return numbers


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
