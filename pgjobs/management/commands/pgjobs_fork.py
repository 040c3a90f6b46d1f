"""``manage.py pgjobs_fork``: a new execution from another's history, from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from pgjobs.workflows.verbs import fork


class Command(BaseCommand):
    """Share the history up to a call and go on from there, on the present code. The old execution stays as it is."""

    help = "Start a new execution that shares another's history up to a call, and runs the rest anew."
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """Which executions, from where, by whom, and why."""
        parser.add_argument("ids", type=int, nargs="+", metavar="ID", help="ids of executions")
        parser.add_argument(
            "--from",
            dest="from_step",
            metavar="STEP",
            help="step id (charge#1), a name that is there once, or a call's number from 0; by default the call "
            "with which it failed",
        )
        parser.add_argument("--user", default="the command line", help="who does it; kept on the row")
        parser.add_argument("--reason", required=True, help="why; kept on the row")

    def handle(
        self, *, ids: list[int], from_step: str | None, user: str, reason: str, **options: Any
    ) -> None:
        """Fork each, and say as what it goes on."""
        outcomes = fork(ids, from_step=from_step, actor=user, reason=reason)
        for outcome in outcomes:
            self.stdout.write(f"execution {outcome.id}: {outcome.message}")
        refused = sum(not outcome.done for outcome in outcomes)
        if refused:
            raise CommandError(f"{refused} of {len(outcomes)} were not forked.")
