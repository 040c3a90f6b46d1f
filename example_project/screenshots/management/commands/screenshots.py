"""``manage.py screenshots``: pictures of the operator's pages, light and dark, for the documents."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.demo.crew import DemoError
from example_project.postgres import PostgresUnavailable
from example_project.screenshots import camera, performance


class Command(BaseCommand):
    help = (
        "Brings about a bad night on an embedded PostgreSQL of its own, with real workers, and takes pictures of "
        "the operator's pages by a headless Chromium. Takes about a minute."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add(
            "--out",
            type=Path,
            default=Path("docs/screenshots"),
            metavar="DIR",
            help="default docs/screenshots",
        )
        add("--only", default="", metavar="NAMES", help="some of the pictures, such as overview,job")
        add("--port", type=int, default=8877, help="of the web pages (default 8877)")
        add("--database-url", metavar="URL", help="an empty database to use instead of an own server")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            camera.require()
            made = performance.perform(
                options["out"],
                only=frozenset(filter(None, options["only"].split(","))),
                port=options["port"],
                database_url=options["database_url"],
                tell=self.stdout.write,
            )
        except (DemoError, PostgresUnavailable) as error:
            raise CommandError(str(error)) from error
        for picture in made:
            self.stdout.write(f"{picture} ({picture.stat().st_size // 1000} kB)")
