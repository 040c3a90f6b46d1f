"""``manage.py demo``: the whole story on one machine, in under a minute."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.core.management import CommandError
from django.core.management.base import BaseCommand, CommandParser

PAGE_DELAY_SECONDS = 0.5
CURE = 'Run: pip install -e ".[demo]"'


class Command(BaseCommand):
    help = (
        "Starts a PostgreSQL of its own and two workers, enqueues PDFs, kills a worker in mid-job and shows "
        "that nothing is lost. Exits with 0 only if that is so."
    )
    requires_system_checks: list[str] = []  # the database of the settings is none of the demo's business

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--documents", type=Path, metavar="DIR", help="PDFs to use instead of made ones")
        parser.add_argument(
            "--serve", action="store_true", help="keep web pages, admin and workers up until Ctrl-C"
        )
        parser.add_argument("--port", type=int, default=8000, help="of the web pages (default 8000)")
        parser.add_argument(
            "--database-url", metavar="URL", help="use this database instead of an own server; it is migrated"
        )
        parser.add_argument(
            "--page-delay",
            type=float,
            default=PAGE_DELAY_SECONDS,
            metavar="SECONDS",
            help=f"time added to each page so that a person can follow (default {PAGE_DELAY_SECONDS})",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        missing = [name for name in ("pypdf", "reportlab") if find_spec(name) is None]
        if missing:
            raise CommandError(f"The demo needs {' and '.join(missing)}, not installed here. {CURE}")
        from example_project.demo.crew import DemoError
        from example_project.demo.display import Display
        from example_project.demo.performance import Plan, perform
        from example_project.postgres import PostgresUnavailable

        plan = Plan(
            folder=_folder(options["documents"]),
            database_url=options["database_url"],
            page_delay=options["page_delay"],
            port=options["port"] if options["serve"] else None,
        )
        try:
            problems = perform(plan, Display(sys.stdout))
        except PostgresUnavailable as error:
            raise CommandError(f"{error}\n{CURE}") from error
        except DemoError as error:
            raise CommandError(str(error)) from error
        if problems:
            raise CommandError("\n".join(["The promise did not hold:", *(f"- {p}" for p in problems)]))


def _folder(path: Path | None) -> Path | None:
    if path is not None and not any(path.glob("*.[pP][dD][fF]")):
        raise CommandError(
            f"--documents {path} is no folder with *.pdf files. Name one that has some, or leave it out."
        )
    return path
