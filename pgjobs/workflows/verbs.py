"""What the methods of an execution do: one line each, to the functions that everybody calls."""

from __future__ import annotations

from typing import Any

from pgjobs.conf import get_settings
from pgjobs.workflows.continuing import last_of_chain
from pgjobs.workflows.control import cancel
from pgjobs.workflows.messages import send
from pgjobs.workflows.outcome import wait_for_result


class Verbs:
    """Implements :class:`pgjobs.workflows.values.ExecutionVerbs`."""

    def signal(self, pk: int, name: str, payload: Any) -> None:
        """Send a signal."""
        send(pk, name, payload)

    def cancel(self, pk: int, *, actor: Any, reason: str) -> bool:
        """Stop it, or the one as which it goes on; False when that had ended."""
        using = get_settings().database
        while True:
            pk = last_of_chain(pk, using=using)
            # It may continue as new just before it is locked; then the next one is the one to stop.
            if cancel([pk], actor=actor, reason=reason)[0].done:
                return True
            if last_of_chain(pk, using=using) == pk:
                return False

    def result(self, pk: int, timeout: float | None) -> Any:
        """Wait for the end and return the output."""
        return wait_for_result(pk, timeout)
