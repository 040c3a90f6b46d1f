"""``manage.py pgjobs_resume``: let queues, types and executions go on, from a shell."""

from __future__ import annotations

from typing import Any

from pgjobs.management.pausing import PausingCommand
from pgjobs.queue import pauses
from pgjobs.queue.audit import Actor
from pgjobs.workflows import control


class Command(PausingCommand):
    """Let what was paused go on."""

    help = "Let paused queues, types and executions go on; executions from their history."
    executions = staticmethod(control.resume)

    def pausing(self, name: str, kind: str, who: Actor, options: dict[str, Any]) -> pauses.PauseOutcome:
        """Resume it."""
        return pauses.resume(name, kind=kind, actor=who, reason=options["reason"])
