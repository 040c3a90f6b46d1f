"""What ``pgjobs_pause`` and ``pgjobs_resume`` have in common: queues, types and executions in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.management.operators import WRONG, OperatorCommand, actor, add_actor, exit_by
from pgjobs.management.verbs import Verb, as_dict
from pgjobs.queue.audit import Actor
from pgjobs.queue.pauses import PauseOutcome


class PausingCommand(OperatorCommand):
    """Prints a line for each queue, type and execution."""

    reason_required = False
    executions: Verb
    """The verb on executions."""

    def add_arguments(self, parser: CommandParser) -> None:
        """What, by whom, and why."""
        parser.add_argument("--queue", nargs="+", default=[], metavar="NAME", help="queues")
        parser.add_argument(
            "--type",
            nargs="+",
            default=[],
            metavar="NAME",
            dest="types",
            help="job types or workflows",
        )
        parser.add_argument(
            "--execution", nargs="+", type=int, default=[], metavar="ID", help="ids of workflow executions"
        )
        add_actor(parser, reason_required=self.reason_required)

    def pausing(self, name: str, kind: str, who: Actor, options: dict[str, Any]) -> PauseOutcome:
        """The verb on a queue or type."""
        raise NotImplementedError

    def act(self, **options: Any) -> None:
        """Do it to all that were named."""
        named = [("queue", name) for name in options["queue"]] + [("type", name) for name in options["types"]]
        if not named and not options["execution"]:
            raise CommandError(
                "Nothing was named. Give --queue NAME, --type NAME or --execution ID.", returncode=WRONG
            )
        who = actor(options["user"])
        told: list[dict[str, Any]] = []
        for kind, name in named:
            outcome = self.pausing(name, kind, who, options)
            told.append({"kind": kind, "name": name, "result": outcome.result, "message": outcome.message})
        if options["execution"]:
            act: Callable[..., Any] = type(self).executions
            for each in act(options["execution"], actor=who, reason=options["reason"]):
                told.append(as_dict("execution", each))
        if options["json"]:
            self.print_json({"outcomes": told})
        else:
            for line in told:
                self.say(f"{line['kind']} {line.get('name', line.get('id'))}: {line['message']}")
        exit_by((line["result"] for line in told), type(self).__module__.rpartition("_")[2])
