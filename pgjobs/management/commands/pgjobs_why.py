"""``manage.py pgjobs_why ID``: why one job is not running, or one execution does not go on."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import Error

from pgjobs.health.answer import FAIL, Why
from pgjobs.health.phrases import span
from pgjobs.health.why import why
from pgjobs.health.why_execution import why_execution
from pgjobs.management.operators import DatabaseCommand
from pgjobs.management.screen import CANNOT_TELL, PROBLEM, clean, fitted, style_for


class Command(DatabaseCommand):
    """Prints the checks in their order."""

    help = (
        "Say why a job is not running, or a workflow execution does not go on. Exit code 0: nothing keeps it; 2: "
        "something does; 3: it cannot be told."
    )
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """Which job or execution; for people or for programs."""
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("id", type=int, nargs="?", help="id of a job")
        which.add_argument("--job", type=int, metavar="ID", help="the same")
        which.add_argument("--execution", type=int, metavar="ID", help="id of a workflow execution")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, **options: Any) -> None:
        """Look, print, and end with the exit code."""
        kind = "job" if options["execution"] is None else "execution"
        given = (options["id"], options["job"], options["execution"])
        pk = next(each for each in given if each is not None)
        if not 0 < pk < 2**63:
            raise CommandError(f"{pk} is no id of a {kind}; ids are whole numbers from 1.")
        try:
            answer = why(pk) if kind == "job" else why_execution(pk)
        except Error as error:
            text = f"It cannot be told: {' '.join(str(error).split())}"
            raise CommandError(text, returncode=CANNOT_TELL) from error
        if answer is None:
            raise CommandError(
                f"There is no {kind} {pk}, in the table or in the archive. Ended ones are removed in time, if the "
                f"settings say so."
            )
        if options["json"]:
            self.stdout.write(json.dumps(answer.as_dict(), ensure_ascii=False))
        else:
            self._print(answer)
        if answer.reason is not None:
            sys.exit(PROBLEM)

    def _print(self, answer: Why) -> None:
        style = style_for(self)
        since = f" since {answer.since:%Y-%m-%d %H:%M:%S}" if answer.since else ""
        age = f" ({span(answer.age)})" if answer.age is not None else ""
        head = f"{answer.kind} {answer.id} {answer.name} [{answer.queue}] {answer.status}{since}{age}"
        self.stdout.write(fitted(clean(head), self.stdout))
        for check in answer.checks:
            mark = style.ERROR("FAIL") if check.state == FAIL else f"{check.state:4}"
            self.stdout.write(f" {mark}  {clean(check.sentence)}")
        if answer.cure:
            self.stdout.write(f"try: {clean(answer.cure)}")
