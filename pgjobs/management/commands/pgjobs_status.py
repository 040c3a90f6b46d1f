"""``manage.py pgjobs_status``: the overview in a terminal."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.exceptions import UnknownName
from pgjobs.health.examination import narrowed
from pgjobs.health.overview import Overview, overview
from pgjobs.management.operators import DatabaseCommand, check_migrated
from pgjobs.management.screen import CANNOT_TELL, FINE, PROBLEM, clean, fitted, style_for, watch
from pgjobs.management.status import lines

EXIT = {"ok": FINE, "problem": PROBLEM, "unknown": CANNOT_TELL}


class Command(DatabaseCommand):
    """Prints verdict, problems, queues and workers."""

    help = (
        "Show what is stuck, since when and why: problems, queues, workers. Exit code 0: nothing is; 2: something is; "
        "3: it cannot be told."
    )
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """Once, or again and again; for people or for programs."""
        parser.add_argument("--queue", help="only this queue")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--watch", nargs="?", type=float, const=5.0, metavar="SECONDS", help="repeat (default every 5 s)"
        )

    def handle(self, **options: Any) -> None:
        """Look, print, and end with the exit code."""
        seconds = options["watch"]
        if seconds is not None and not 0.1 <= seconds <= 86_400:
            raise CommandError(f"--watch {seconds:g} is out of range; give 0.1 to 86400 seconds.")
        look = self._look(options["queue"])
        if seconds is not None:
            watch(lambda: self._lines(self._look(options["queue"]), options), seconds, self.stdout)
        for line in self._lines(look, options):
            self.stdout.write(line)
        if code := EXIT[look.verdict.state]:
            sys.exit(code)

    def _look(self, queue: str | None) -> Overview:
        look = overview()
        try:
            verdict = narrowed(look.verdict, (), queue)
        except UnknownName as error:
            raise CommandError(f"--queue: {clean(error)}") from error
        rows = look.queues if queue is None else look.queues and [r for r in look.queues if r.name == queue]
        return replace(look, verdict=verdict, queues=rows)

    def _lines(self, look: Overview, options: dict[str, Any]) -> list[str]:
        if options["json"]:
            return [json.dumps(look.as_dict(), ensure_ascii=False)]
        check_migrated(look.verdict)
        queue = options["queue"]
        return [fitted(line, self.stdout) for line in lines(look, queue=queue, style=style_for(self))]
