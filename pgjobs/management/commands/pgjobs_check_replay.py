"""``manage.py pgjobs_check_replay``: may this code be deployed under the executions that are under way?"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.conf import get_settings
from pgjobs.health.phrases import many
from pgjobs.management.operators import FOUND, MISUSED, DatabaseCommand
from pgjobs.workflows.models import Execution
from pgjobs.workflows.registry import workflows
from pgjobs.workflows.replay_check import PROBLEMS, Finding, check
from pgjobs.workflows.states import TERMINAL


class Command(DatabaseCommand):
    """Prints each finding, and ends with exit code 1 when there is one, and for nothing else."""

    wrong = MISUSED

    help = (
        "Replay every unfinished workflow execution against the present code, without side effects; run it before the "
        "workers get a new release. Exit code 1: one diverges, has no code here, or raises; 2: wrong usage; 3: the "
        "database cannot be asked."
    )
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """Which executions, how long, and what to do with findings."""
        add = parser.add_argument
        add("--workflow", action="append", metavar="NAME", help="only this one; may be given again")
        add("--limit", type=int, metavar="N", help="only the N oldest executions")
        add("--seconds", type=float, default=5.0, help="most that one body may take (default 5)")
        add(
            "--allow",
            action="append",
            choices=PROBLEMS,
            default=[],
            metavar="PROBLEM",
            help=f"report it, but do not fail for it; one of {', '.join(PROBLEMS)}; may be given again",
        )
        add("--json", action="store_true", help="print the whole report as one JSON object")

    def handle(self, *, workflow: list[str] | None, limit: int | None, **options: Any) -> None:
        """Check, report, and say by the exit code whether the code may go live."""
        _check_usage(workflow or [], limit, options["seconds"])
        as_json = options["json"]
        report = check(
            names=workflow,
            limit=limit,
            seconds=options["seconds"],
            found=(lambda finding: None) if as_json else self._print,
        )
        counts = {problem: count for problem, count in report.counts().items() if count}
        if as_json:
            self.stdout.write(json.dumps(report.as_dict(), indent=2))
        else:
            told = ", ".join(f"{count} {problem}" for problem, count in counts.items()) or "nothing found"
            self.stdout.write(f"Replayed {many(report.checked, 'unfinished execution')}: {told}.")
        blocking = sum(counts.get(problem, 0) for problem in PROBLEMS if problem not in options["allow"])
        if blocking:
            raise CommandError(
                f"{blocking} of {many(report.checked, 'execution')} cannot go on under this code. Change it, or end "
                f"them.",
                returncode=FOUND,
            )

    def _print(self, finding: Finding) -> None:
        at = f" at {finding.step!r}" if finding.step else ""
        self.stdout.write(
            f"execution {finding.execution} ({finding.workflow}, {finding.status}): "
            f"{finding.problem}{at}: {finding.detail}"
        )


def _check_usage(names: list[str], limit: int | None, seconds: float) -> None:
    """Raises :class:`CommandError` for what cannot be checked."""
    wrong = ""
    if limit is not None and limit < 1:
        wrong = f"--limit is {limit}; give 1 or more, or leave it out to check all."
    elif not seconds > 0:
        wrong = f"--seconds is {seconds:g}; give a positive number."
    elif missing := [name for name in names if name not in workflows.names() and not _unfinished(name)]:
        known = ", ".join(workflows.names()) or "none"
        wrong = f"No workflow or unfinished execution is called {missing[0]!r}. Here: {known}."
    if wrong:
        raise CommandError(wrong, returncode=MISUSED)


def _unfinished(name: str) -> bool:
    found = Execution._base_manager.using(get_settings().database).exclude(status__in=sorted(TERMINAL))
    return "\x00" not in name and found.filter(workflow_name=name).exists()
