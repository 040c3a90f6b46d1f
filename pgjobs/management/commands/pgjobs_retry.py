"""``manage.py pgjobs_retry``: the verb of that name, from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.management.operators import BEFOREHAND, WRONG, check_name, duration
from pgjobs.management.verbs import VerbCommand
from pgjobs.queue import control as jobs
from pgjobs.workflows import control as executions

_OF_JOBS = ("more_attempts", "max_attempts", "run_after", "queue", "priority")


class Command(VerbCommand):
    """Send jobs and executions that ended without success back to work, with their history kept."""

    help = "Send jobs and executions that ended without success back to work, with their history kept."
    verbs = {"job": jobs.retry, "execution": executions.retry}

    def add_arguments(self, parser: CommandParser) -> None:
        """How, for jobs."""
        super().add_arguments(parser)
        parser.add_argument(
            "--more-attempts", type=int, metavar="N", help="attempts that a job then has left"
        )
        parser.add_argument("--max-attempts", type=int, metavar="N", help="raise the budget of jobs to N")
        parser.add_argument(
            "--run-after", type=duration, metavar="TIME", help="not at once, but in 30m, 2h, 1d"
        )
        parser.add_argument("--queue", metavar="NAME", help="move jobs to this queue")
        parser.add_argument("--priority", type=int, metavar="N", help="of jobs; smaller runs sooner")

    def further(self, kind: str, options: dict[str, Any]) -> dict[str, Any]:
        """Options that were given; executions take none."""
        given = {name: options[name] for name in _OF_JOBS if options[name] is not None}
        if given and kind != "job":
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise CommandError(
                f"{names}: for jobs only. Retry the executions in a call of its own.", returncode=WRONG
            )
        check_name("--queue", "queue", options["queue"], BEFOREHAND)
        return given
