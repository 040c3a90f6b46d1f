"""What the commands that move jobs and executions have in common: their options, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from pgjobs.queue.control import VerbOutcome

Verb = Callable[..., list[VerbOutcome]]


class VerbCommand(BaseCommand):
    """Calls the verb of the same name and prints a line for each id; ends with an error if one was refused."""

    requires_system_checks = ["pgjobs"]
    verbs: dict[str, Verb]
    """By what it is done to: "job", "execution"."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Which rows, by whom, and why."""
        for kind in self.verbs:
            parser.add_argument(
                f"--{kind}", type=int, nargs="+", default=[], metavar="ID", help=f"ids of {kind}s"
            )
        parser.add_argument("--user", default="the command line", help="who does it; kept on the row")
        parser.add_argument("--reason", default="", help="why; kept on the row")

    def handle(self, *, user: str, reason: str, **options: Any) -> None:
        """Do it to all that were named."""
        named = {kind: options[kind] for kind in self.verbs if options[kind]}
        if not named:
            ways = " or ".join(f"--{kind} ID" for kind in self.verbs)
            raise CommandError(f"Nothing was named. Give {ways}.")
        outcomes = []
        for kind, ids in named.items():
            for outcome in self.verbs[kind](ids, actor=user, reason=reason):
                self.stdout.write(f"{kind} {outcome.id}: {outcome.message}")
                outcomes.append(outcome)
        refused = sum(not outcome.done for outcome in outcomes)
        if refused:
            raise CommandError(f"{refused} of {len(outcomes)} were left as they are.")
