"""The workflows that this process knows. Loads no models."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pgjobs import redaction
from pgjobs.exceptions import UnknownWorkflow
from pgjobs.queue.names import declare
from pgjobs.registries import Registry, name_of

OnDivergence = Literal["pause", "fail", "warn"]


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A function whose first parameter is the workflow context, and how its executions are treated."""

    function: Callable[..., Any]
    name: str | None
    version: int
    queue: str
    priority: int
    max_crashes: int
    on_divergence: OnDivergence
    redact: tuple[str, ...] = ()
    """Further keys of its input, output and steps that are secret."""

    @property
    def workflow_name(self) -> str:
        """The name its rows carry."""
        return name_of(self)

    @property
    def is_async(self) -> bool:
        """Whether the body is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)


workflows: Registry[Definition] = Registry("workflow", UnknownWorkflow)


def _redact_entries(workflow_name: str) -> tuple[str, ...]:
    definition = workflows.find(workflow_name)
    return definition.redact if definition else ()


redaction.declare("workflow", _redact_entries)
declare(lambda: ((each.workflow_name, each.queue) for each in workflows.entries()))
