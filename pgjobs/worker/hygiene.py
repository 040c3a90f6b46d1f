"""What is put back after user code ran in a thread, so that nothing reaches into what runs there next.

What Django and others keep in context variables (language, time zone) needs no putting back: a slot runs each row in a
context of its own.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from django.db import reset_queries
from django.db.backends.signals import connection_created

from pgjobs.connections import release_handler_connections

logger = logging.getLogger("pgjobs.worker")


class _Thread(threading.local):
    connected = False
    """Whether a connection was opened in this thread since it was last tidied."""


_thread = _Thread()


def _opened(**kwargs: Any) -> None:
    _thread.connected = True


connection_created.connect(_opened, dispatch_uid="pgjobs.worker.hygiene")


def clean_up(label: str, pk: int, name: str) -> None:
    """Close the connections that were opened in this thread; say what was left open.

    Never raises: how the row ended is known already, and must not be lost to what could not be tidied.
    Where nothing was opened nothing is looked at: to ask Django for the connections of a thread takes longer
    than all else that a short job costs a slot.
    """
    if not _thread.connected:
        return
    try:
        reset_queries()
        for problem in release_handler_connections():
            logger.warning("%s=%s (%s) left %s; it was closed and rolled back", label, pk, name, problem)
        _thread.connected = False
    except Exception:
        logger.exception("%s=%s (%s) left something that could not be tidied", label, pk, name)
