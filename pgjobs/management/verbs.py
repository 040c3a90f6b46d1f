"""What the commands that move jobs and executions have in common: their options, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.management.operators import WRONG, OperatorCommand, actor, add_actor, exit_by
from pgjobs.queue.control import VerbOutcome

Verb = Callable[..., list[VerbOutcome]]


class VerbCommand(OperatorCommand):
    """Calls the verb of the same name and prints a line for each id; ends with an error if one was refused."""

    verbs: dict[str, Verb]
    """By what it is done to: "job", "execution"."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Which rows, by whom, and why."""
        for kind in self.verbs:
            parser.add_argument(
                f"--{kind}", type=int, nargs="+", default=[], metavar="ID", help=f"ids of {kind}s"
            )
        add_actor(parser)

    def further(self, kind: str, options: dict[str, Any]) -> dict[str, Any]:
        """What else the verb on ``kind`` is given. Raises CommandError for what it does not take."""
        return {}

    def act(self, **options: Any) -> None:
        """Do it to all that were named."""
        named = {kind: options[kind] for kind in self.verbs if options[kind]}
        if not named:
            ways = " or ".join(f"--{kind} ID" for kind in self.verbs)
            raise CommandError(f"Nothing was named. Give {ways}.", returncode=WRONG)
        calls = {kind: self.further(kind, options) for kind in named}
        outcomes: list[tuple[str, VerbOutcome]] = []
        for kind, ids in named.items():
            who = actor(options["user"])
            for outcome in self.verbs[kind](ids, actor=who, reason=options["reason"], **calls[kind]):
                outcomes.append((kind, outcome))
                if not options["json"]:
                    self.say(f"{kind} {outcome.id}: {outcome.message}")
        if options["json"]:
            self.print_json({"outcomes": [as_dict(kind, outcome) for kind, outcome in outcomes]})
        exit_by((outcome.result for _, outcome in outcomes), type(self).__module__.rpartition("_")[2])


def as_dict(kind: str, outcome: VerbOutcome) -> dict[str, Any]:
    """An outcome for programs."""
    return {
        "kind": kind,
        "id": outcome.id,
        "result": outcome.result,
        "message": outcome.message,
        "status": outcome.status,
        "made": outcome.made,
    }
