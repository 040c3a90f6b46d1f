"""``manage.py pgjobs_health``: the rules as a probe, for cron, monit, Nagios and the like."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.exceptions import UnknownName
from pgjobs.health.examination import examine, narrowed
from pgjobs.health.verdict import CODES
from pgjobs.management.operators import DatabaseCommand, check_migrated
from pgjobs.management.screen import CANNOT_TELL, FINE, PROBLEM, clean

EXIT = {"ok": FINE, "problem": PROBLEM, "unknown": CANNOT_TELL}


class Command(DatabaseCommand):
    """One line for each problem; the exit code says the rest."""

    help = (
        "Go through the rules of health. Exit code 0: nothing is stuck; 2: a problem; 3: a rule is unknown."
    )
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """All rules, or some; all queues, or one."""
        parser.add_argument(
            "--check", nargs="+", default=[], choices=list(CODES), metavar="CODE", help="only these"
        )
        parser.add_argument("--queue", help="only problems of this queue")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, **options: Any) -> None:
        """Look, print, and end with the exit code."""
        try:
            verdict = narrowed(examine(), options["check"], options["queue"])
        except UnknownName as error:
            raise CommandError(f"--queue: {clean(error)}") from error
        if options["json"]:
            self.stdout.write(json.dumps(verdict.as_dict(), ensure_ascii=False))
        else:
            check_migrated(verdict)
            for problem in verdict.problems:
                since = f" since {problem.since:%Y-%m-%d %H:%M:%S}" if problem.since else ""
                told = f"{clean(problem.why)} Try: {clean(problem.cure)}"
                self.stdout.write(f"{problem.severity.value} {problem.code}{since}: {told}")
            for rule, why in verdict.unknown.items():
                self.stdout.write(f"unknown {rule}: {clean(why)}")
            if verdict.state == "ok":
                self.stdout.write("ok: nothing is stuck")
        if code := EXIT[verdict.state]:
            sys.exit(code)
