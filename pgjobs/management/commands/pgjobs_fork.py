"""``manage.py pgjobs_fork``: a new execution from another's history, from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from pgjobs.management.operators import OperatorCommand, actor, add_actor, exit_by
from pgjobs.management.verbs import as_dict
from pgjobs.workflows.verbs import fork


class Command(OperatorCommand):
    """Share the history up to a call and go on from there, on the present code."""

    help = "Start a new execution that shares another's history up to a call, and runs the rest anew."

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
        parser.add_argument(
            "--cancel-source",
            action="store_true",
            help="cancel each in the same commit; one that cannot be cancelled is not forked",
        )
        add_actor(parser, reason_required=True)

    def act(self, **options: Any) -> None:
        """Fork each, and say as what it goes on."""
        outcomes = fork(
            options["ids"],
            from_step=options["from_step"],
            actor=actor(options["user"]),
            reason=options["reason"],
            cancel_source=options["cancel_source"],
        )
        if options["json"]:
            self.print_json({"outcomes": [as_dict("execution", outcome) for outcome in outcomes]})
        else:
            for outcome in outcomes:
                self.say(f"execution {outcome.id}: {outcome.message}")
        exit_by((outcome.result for outcome in outcomes), "fork")
