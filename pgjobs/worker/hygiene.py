"""What is put back after user code ran in a thread, so that nothing reaches into what runs there next."""

from __future__ import annotations

import logging

from django.db import reset_queries
from django.utils import timezone, translation

from pgjobs.connections import release_handler_connections

logger = logging.getLogger("pgjobs.worker")


def clean_up(label: str, pk: int, name: str) -> None:
    """Close the connections of this thread and reset what Django keeps in it; say what was left open.

    Never raises: how the row ended is known already, and must not be lost to what could not be tidied.
    """
    try:
        reset_queries()
        for problem in release_handler_connections():
            logger.warning("%s=%s (%s) left %s; it was closed and rolled back", label, pk, name, problem)
        translation.deactivate()
        timezone.deactivate()
    except Exception:
        logger.exception("%s=%s (%s) left something that could not be tidied", label, pk, name)
