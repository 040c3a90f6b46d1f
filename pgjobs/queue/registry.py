"""The handlers of jobs. The registry is the only way from a row to code. Loads no models."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgjobs import redaction
from pgjobs.backoff import Backoff
from pgjobs.exceptions import UnknownJobType
from pgjobs.registries import Registry, name_of

RetryPolicy = Backoff | Callable[[int, BaseException], float | None]
"""A backoff, or a function of attempt and exception that answers seconds, or None to stop."""


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A function and the policy under which a worker runs it."""

    function: Callable[..., Any]
    name: str | None
    retry: RetryPolicy
    timeout: float | None
    takes_context: bool
    redact: tuple[str, ...] = ()
    """Further keys of its payload and result that are secret."""
    queue: str = "default"
    """Where its jobs go unless they are told otherwise."""
    max_attempts: int = 5
    """How many of them its jobs have unless they are told otherwise."""

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def job_type(self) -> str:
        """The name its rows carry."""
        return name_of(self)


registry: Registry[Handler] = Registry("job type", UnknownJobType)


def _redact_entries(job_type: str) -> tuple[str, ...]:
    handler = registry.find(job_type)
    return handler.redact if handler else ()


redaction.declare("job_type", _redact_entries)
