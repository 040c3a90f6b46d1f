"""What is put back after user code ran in a thread, so that nothing reaches into what runs there next.

What Django and others keep in context variables (language, time zone, root of URLs) needs no putting back: a slot runs
each row in a context of its own.
"""

from __future__ import annotations

import logging
import math
import threading
from typing import Any

from django.db import reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from pgjobs.connections import release_handler_connections
from pgjobs.worker import keeping

logger = logging.getLogger("pgjobs.worker")


class _Thread(threading.local):
    def __init__(self) -> None:
        self.connected = False
        """Whether a connection was opened in this thread since it was last tidied."""
        self.seen: dict[str, tuple[BaseDatabaseWrapper, list[Any]]] = {}
        """By alias, each connection of this thread, and its execute wrappers when it was last opened."""


_thread = _Thread()


def _opened(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    _thread.connected = True
    _thread.seen[connection.alias] = connection, list(connection.execute_wrappers)
    keeping.opened(connection)


connection_created.connect(_opened, dispatch_uid="pgjobs.worker.hygiene")


def clean_up(label: str, pk: int, name: str, *, ran: float = math.inf) -> None:
    """Put back the connections that were opened in this thread; say what was left open.

    They are closed, but for those that something short (it ``ran`` so many seconds) has left clean: their sessions
    are reset and kept for a moment. Never raises: how the row ended is known already, and must not be lost to what
    could not be tidied. Where nothing was opened Django is not asked for the connections of the thread: that takes
    longer than all else that a short job costs a slot.
    """
    if not _thread.seen:
        return
    try:
        marked = False
        for connection, at_first in _thread.seen.values():
            for mark in _put_back(connection, at_first):
                marked = True
                logger.warning("%s=%s (%s) left %s; put back", label, pk, name, mark)
        if not _thread.connected:
            return
        reset_queries()
        keep = keeping.keep if ran < keeping.SHORT and not marked else None
        for problem in release_handler_connections(keep):
            logger.warning("%s=%s (%s) left %s; it was closed and rolled back", label, pk, name, problem)
        _thread.connected = False
    except Exception:
        logger.exception("%s=%s (%s) left something that could not be tidied", label, pk, name)


def _put_back(connection: BaseDatabaseWrapper, at_first: list[Any]) -> list[str]:
    """Undo what outlives a session on Django's side of a connection; what that was.

    Execute wrappers that came with the connection are no news, but go too: receivers of ``connection_created`` add
    theirs again, and what a handler added before its first query is not told from those.
    """
    left = []
    if connection.execute_wrappers:
        if any(wrapper not in at_first for wrapper in connection.execute_wrappers):
            left.append(f"execute_wrappers on {connection.alias!r}")
        connection.execute_wrappers = []
    if connection.force_debug_cursor:
        left.append(f"force_debug_cursor on {connection.alias!r}")
        connection.force_debug_cursor = False
    if connection.allow_thread_sharing:
        left.append(f"{connection.alias!r} shared between threads")
        while connection.allow_thread_sharing:
            connection.dec_thread_sharing()
    return left
