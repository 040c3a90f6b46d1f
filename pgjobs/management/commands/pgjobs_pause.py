"""``manage.py pgjobs_pause``: hold queues, types and executions, from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from pgjobs.management.operators import duration
from pgjobs.management.pausing import PausingCommand
from pgjobs.queue import pauses
from pgjobs.queue.audit import Actor
from pgjobs.workflows import control


class Command(PausingCommand):
    """What runs is finished, nothing new starts."""

    help = (
        "Pause queues, types of jobs or workflows, or single executions: what runs is finished, nothing new starts. "
        "With --for, queues and types go on by themselves."
    )
    reason_required = True
    executions = staticmethod(control.pause)

    def add_arguments(self, parser: CommandParser) -> None:
        """For how long."""
        super().add_arguments(parser)
        parser.add_argument(
            "--for",
            type=duration,
            metavar="TIME",
            dest="lasting",
            help="30m, 2h, 1d; without it until resumed",
        )

    def pausing(self, name: str, kind: str, who: Actor, options: dict[str, Any]) -> pauses.PauseOutcome:
        """Pause it."""
        return pauses.pause(name, kind=kind, actor=who, reason=options["reason"], until=options["lasting"])
