"""Handlers by the name that rows carry. The registry is the only way from a row to code. Loads no models."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.apps import apps

from pgjobs.backoff import Backoff
from pgjobs.exceptions import DuplicateJobType, InvalidHandler, UnknownJobType

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

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def place(self) -> str:
        """Where it is written, for people."""
        code = inspect.unwrap(self.function).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def job_type(self) -> str:
        """The name its rows carry: as given, else ``<app label>.<function name>``.

        Raises ``AppRegistryNotReady`` when asked, without a given name, before Django knows its apps.
        """
        if self.name:
            return self.name
        module = self.function.__module__
        config = apps.get_containing_app_config(module)
        label = config.label if config else module.rpartition(".")[0].rpartition(".")[2] or module
        return f"{label}.{self.function.__name__}"


class Registry:
    """All handlers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unnamed: list[Handler] = []
        self._by_name: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Register ``handler``. Raises :class:`DuplicateJobType`, naming both places, when the name is taken.

        A module imported while Django still loads its apps is named later, by :meth:`resolve`.
        """
        with self._lock:
            if handler.name is None and not apps.apps_ready:
                self._unnamed.append(handler)
            else:
                self._put(handler)

    def resolve(self) -> None:
        """Name the handlers that came before Django knew its apps."""
        with self._lock:
            while self._unnamed:
                self._put(self._unnamed.pop())

    def get(self, job_type: str) -> Handler:
        """The handler of ``job_type``. Raises :class:`UnknownJobType`."""
        self.resolve()
        try:
            return self._by_name[job_type]
        except KeyError:
            raise UnknownJobType(job_type, self.names()) from None

    def names(self) -> list[str]:
        """All job types that this process can run, sorted."""
        self.resolve()
        return sorted(self._by_name)

    def handlers(self) -> Iterable[Handler]:
        """All handlers."""
        self.resolve()
        return list(self._by_name.values())

    def _put(self, handler: Handler) -> None:
        name = handler.job_type
        if len(name) > 200 or "\x00" in name or not name.strip():
            raise InvalidHandler(
                f"The job type {name[:80]!r} at {handler.place} is not usable: give 1 to 200 characters, no NUL."
            )
        first = self._by_name.get(name)
        if first is not None and first.place != handler.place:
            raise DuplicateJobType(name, first.place, handler.place)
        self._by_name[name] = handler


registry = Registry()
