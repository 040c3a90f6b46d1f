"""``manage.py pgjobs_status``: the overview in a terminal."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from pgjobs.health.overview import Overview, overview
from pgjobs.management.screen import CANNOT_TELL, FINE, PROBLEM, fitted, style_for, watch
from pgjobs.management.status import lines

EXIT = {"ok": FINE, "problem": PROBLEM, "unknown": CANNOT_TELL}


class Command(BaseCommand):
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
        if seconds is not None:
            watch(lambda: self._lines(overview(), options), seconds, self.stdout)
        look = overview()
        for line in self._lines(look, options):
            self.stdout.write(line)
        verdict = look.verdict if options["queue"] is None else look.verdict.only((), options["queue"])
        if code := EXIT[verdict.state]:
            sys.exit(code)

    def _lines(self, look: Overview, options: dict[str, Any]) -> list[str]:
        queue = options["queue"]
        if options["json"]:
            return [json.dumps(_chosen(look, queue), ensure_ascii=False)]
        return [fitted(line, self.stdout) for line in lines(look, queue=queue, style=style_for(self))]


def _chosen(look: Overview, queue: str | None) -> dict[str, Any]:
    told = look.as_dict()
    if queue is not None:
        told |= look.verdict.only((), queue).as_dict()
        told["queues"] = told["queues"] and [row for row in told["queues"] if row["name"] == queue]
    return told
