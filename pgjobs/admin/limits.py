"""A limit on what a page may ask of the database: each panel has its own, and one that fails says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
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

_CANCELLED = "57014"


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


def told(error: Exception, seconds: float) -> str:
    """Why something cannot be shown."""
    if sqlstate(error) == _CANCELLED:
        return f"Not available: took longer than {seconds:g} s"
    logger.warning("a panel of the admin could not be read: %s", error)
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"Not available: {first[:200]}"
