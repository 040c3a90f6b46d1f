"""Reads that end in time: a statement that takes too long is given up, and what depends on it is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from django.db import Error, connections, transaction

from pgjobs.connections import rows

Answer = TypeVar("Answer")

TIMEOUT = "500ms"
"""Longest that one statement may keep the server busy."""

_BOUND = """
SELECT current_setting('statement_timeout'), set_config('statement_timeout', %(timeout)s, true)"""


@contextmanager
def bounded(using: str, timeout: str = TIMEOUT) -> Iterator[None]:
    """A transaction in which every statement ends after ``timeout``: SQLSTATE 57014 then.

    Inside a transaction of the caller's it is a savepoint, and the caller's own limit holds again after it.
    """
    # Where autocommit is off, a transaction goes on after the block, as within one of the caller's.
    nested = connections[using].in_atomic_block or not connections[using].get_autocommit()
    with transaction.atomic(using=using):
        ((before, _),) = rows(using, _BOUND, {"timeout": timeout})
        yield
        if nested:  # a savepoint that is rolled back has put it back by itself
            rows(using, _BOUND, {"timeout": before})


class Reader:
    """One :func:`bounded` block for many reads. One that fails ends it, and the next read begins another."""

    def __init__(self, using: str, timeout: str | None = None) -> None:
        self.using = using
        self._timeout = timeout
        """In place of :data:`TIMEOUT`."""
        self._block: ExitStack | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(kind, error, trace)

    def ask(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement. Raises what the database raises."""
        return self.within(lambda: rows(self.using, sql, params))

    def within(self, read: Callable[[], Answer]) -> Answer:
        """What ``read`` answers, which sends its statements itself. Raises what the database raises."""
        if self._block is None:
            block = ExitStack()
            block.enter_context(bounded(self.using, self._timeout or TIMEOUT))
            self._block = block
        try:
            return read()
        except Error as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
