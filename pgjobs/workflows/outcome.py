"""Waiting, from outside a workflow, for how it ends."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.exceptions import ExecutionFailed, WorkflowError
from pgjobs.workflows.models import ArchivedExecution, Execution
from pgjobs.workflows.states import TERMINAL, ExecutionStatus

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """An execution as it stands, in the live tables or in the archive."""

    status: str
    output: Any
    last_error: str
    note: str
    pause_reason: str
    continued_as: int | None

    def why(self) -> str:
        return self.note if self.status == ExecutionStatus.CANCELLED else self.last_error


def wait_for_result(pk: int, timeout: float | None = None) -> Any:
    """The output of an execution, once it has ended; of its last continuation, when it continued as new.

    Waits for ever without ``timeout`` (seconds). Raises :class:`ExecutionFailed` when it ended otherwise,
    TimeoutError when it did not end in time, :class:`WorkflowError` when there is no such execution.
    """
    using = get_settings().database
    started, pause, asked = time.monotonic(), _FIRST_PAUSE, pk
    while True:
        seen = _look(pk, using)
        if seen is None:
            raise WorkflowError(_missing(pk, asked))
        if seen.continued_as is not None:
            pk = seen.continued_as
            continue
        if seen.status == ExecutionStatus.SUCCEEDED:
            return codec.decode(seen.output)
        if seen.status in TERMINAL:
            raise ExecutionFailed(pk, seen.status, seen.why())
        left = None if timeout is None else started + timeout - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(_unfinished(pk, timeout, seen))
        time.sleep(pause if left is None else min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _look(pk: int, using: str) -> _Seen | None:
    columns = ("status", "output", "last_error", "note", "pause_reason", "continued_as__pk")
    found = Execution._base_manager.using(using).filter(pk=pk).values_list(*columns).first()
    if found is not None:
        return _Seen(*found)
    story = ArchivedExecution._base_manager.using(using).filter(pk=pk).values_list("story", flat=True).first()
    if story is None:
        return None
    row: dict[str, Any] = story["execution"]
    return _Seen(**{name: row[name] for name in columns[:-1]}, continued_as=story["continued_as"])


def _missing(pk: int, asked: int) -> str:
    continued = f" (as which {asked} continued)" if pk != asked else ""
    return f"there is no execution {pk}{continued}: it was never committed, or deleted after it had ended."


def _unfinished(pk: int, timeout: float | None, seen: _Seen) -> str:
    if seen.status == ExecutionStatus.PAUSED:
        return (
            f"execution {pk} is paused after {timeout:g} s ({seen.pause_reason}). Resume it, then ask again."
        )
    return (
        f"execution {pk} is {seen.status} after {timeout:g} s. It goes on by itself; ask again later, or with a "
        f"longer timeout."
    )
