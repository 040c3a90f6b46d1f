"""A limit on what a page may ask of the database: each panel has its own, and one that fails says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, InterfaceError

from pgjobs.conf import get_settings
from pgjobs.connections import sqlstate
from pgjobs.health.reading import bounded

logger = logging.getLogger("pgjobs.admin")

PANEL_SECONDS = 0.5
"""Longest statement of a panel."""
LIST_SECONDS = 2.0
"""Longest statement of a list."""
ACT_SECONDS = 5.0
"""Longest statement of a verb, the wait for rows that others hold included."""

_CANCELLED = "57014"
_GONE = ("", "080", "57P")  # the session ended before it answered


class Undone(Exception):
    """A verb that the database did not carry out. Its text is what the person is told."""


@dataclass(frozen=True, slots=True)
class Panel:
    """What a part of a page shows: its value, or why there is none. Never a zero in the place of an unknown."""

    value: Any = None
    problem: str = ""


def limited(seconds: float) -> AbstractContextManager[None]:
    """No statement of the block on the queue's database runs longer; the request's own limit holds again after it."""
    return bounded(get_settings().database, f"{round(seconds * 1000)}ms")


def panel(read: Callable[[], Any], *, seconds: float = PANEL_SECONDS) -> Panel:
    """What ``read`` returns, or in words why it could not be read. The rest of the page goes on."""
    try:
        with limited(seconds):
            return Panel(read())
    except (DatabaseError, InterfaceError) as error:
        return Panel(problem=told(error, seconds))


@contextmanager
def acting() -> Iterator[None]:
    """The transaction of a verb, of which no statement runs longer than ``ACT_SECONDS``.

    Raises :class:`Undone` for what the database refuses: then all of it is rolled back. Only where the answer to its
    commit was lost is that not known, and the text says so.
    """
    at_its_end = False
    try:
        with limited(ACT_SECONDS):
            yield
            at_its_end = True
    except (DatabaseError, InterfaceError) as error:
        raise Undone(undone(error, ACT_SECONDS, committing=at_its_end)) from error


def undone(error: Exception, seconds: float, *, committing: bool) -> str:
    """What to tell of a verb that ended in an error. ``committing``: it may have been its commit that failed."""
    cause = why(error, seconds)
    if committing and sqlstate(error)[:3] in _GONE:
        return f"Whether it was done is not known: {cause}. Look before you do it again."
    return f"Nothing was done: {cause}."


def told(error: Exception, seconds: float) -> str:
    """Why something cannot be shown."""
    return f"Not available: {why(error, seconds)}"


def why(error: Exception, seconds: float) -> str:
    """What the database said, in a line."""
    if sqlstate(error) == _CANCELLED:
        return f"took longer than {seconds:g} s"
    logger.warning("the database refused what the admin asked: %s", error)
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return first[:200].rstrip(".")
