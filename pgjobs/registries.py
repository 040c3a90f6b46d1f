"""Functions by the name that rows carry: the only way from a row to code. Loads no models."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any, Generic, Protocol, TypeVar

from django.apps import apps

from pgjobs.exceptions import DuplicateName, InvalidHandler, PgJobsError


class Named(Protocol):
    """What can be registered."""

    @property
    def function(self) -> Callable[..., Any]:
        """The code."""
        ...

    @property
    def name(self) -> str | None:
        """As given by the author, or None for the default."""
        ...


Entry = TypeVar("Entry", bound=Named)


class Registry(Generic[Entry]):
    """All entries of one kind in this process."""

    def __init__(self, kind: str, unknown: Callable[[str, list[str]], PgJobsError]) -> None:
        self._kind = kind
        self._unknown = unknown
        self._lock = threading.Lock()
        self._unnamed: list[Entry] = []
        self._by_name: dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Register ``entry``. Raises :class:`DuplicateName`, naming both places, when the name is taken.

        A module imported while Django still loads its apps is named later, by :meth:`resolve`. Raises
        :class:`InvalidHandler` when a name is not given and there is no default: every call of what makes a local
        function, such as a decorator without ``functools.wraps``, makes one of the same name.
        """
        qualname = getattr(entry.function, "__qualname__", "")
        if not entry.name and "<locals>" in qualname:
            raise InvalidHandler(
                f"The {self._kind} at {place_of(entry)} is the local function {qualname}, and others may have that "
                f"name too: give name=, or use functools.wraps in the decorator that made it."
            )
        with self._lock:
            if entry.name is None and not apps.apps_ready:
                self._unnamed.append(entry)
            else:
                self._put(entry)

    def resolve(self) -> None:
        """Name the entries that came before Django knew its apps."""
        if self._unnamed:
            with self._lock:
                while self._unnamed:
                    self._put(self._unnamed.pop())

    def get(self, name: str) -> Entry:
        """The entry of ``name``. Raises the error for unknown names that the registry was made with."""
        self.resolve()
        try:
            return self._by_name[name]
        except KeyError:
            raise self._unknown(name, self.names()) from None

    def find(self, name: str) -> Entry | None:
        """The entry of ``name``, or None."""
        self.resolve()
        return self._by_name.get(name)

    def names(self) -> list[str]:
        """All names that this process can run, sorted."""
        self.resolve()
        return sorted(self._by_name)

    def entries(self) -> list[Entry]:
        """All of them, by name."""
        return [self.get(name) for name in self.names()]

    def _put(self, entry: Entry) -> None:
        name = name_of(entry)
        if len(name) > 200 or "\x00" in name or not name.strip():
            raise InvalidHandler(
                f"The {self._kind} {name[:80]!r} at {place_of(entry)} is not usable: give 1 to 200 characters, no NUL."
            )
        first = self._by_name.get(name)
        if first is not None and not _is_the_same_again(first, entry):
            raise DuplicateName(self._kind, name, place_of(first), place_of(entry))
        self._by_name[name] = entry


def name_of(entry: Named) -> str:
    """The name its rows carry: as given, else ``<app label>.<function name>``.

    Raises ``AppRegistryNotReady`` when asked, without a given name, before Django knows its apps.
    """
    if entry.name:
        return entry.name
    module = entry.function.__module__
    config = apps.get_containing_app_config(module)
    label = config.label if config else module.rpartition(".")[0].rpartition(".")[2] or module
    return f"{label}.{entry.function.__name__}"


def _is_the_same_again(first: Named, entry: Named) -> bool:
    """Whether it is one function, or one of a module that was imported anew.

    A reload makes new code at the old place. Functions with one code between them, from one decorator or a loop, are
    several: the later must not take the name of the earlier.
    """
    before, now = first.function, entry.function
    if before is now:
        return True
    origins = {(f.__module__, getattr(f, "__qualname__", "")) for f in (before, now)}
    return len(origins) == 1 and place_of(first) == place_of(entry) and _code(before) is not _code(now)


def _code(function: Callable[..., Any]) -> CodeType:
    return inspect.unwrap(function).__code__  # type: ignore[no-any-return]


def place_of(entry: Named) -> str:
    """Where it is written, for people."""
    code = _code(entry.function)
    return f"{code.co_filename}:{code.co_firstlineno}"
