"""Many rows in one transaction, without one bad row stalling the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from django.db import DatabaseError, transaction

from pgjobs.connections import OUTAGE, sqlstate

logger = logging.getLogger("pgjobs.workflows")

_LIMIT_EXCEEDED = "54"
"""SQLSTATE class of a value too large for the server. Django raises it as OperationalError, but it is no outage."""


def handle_all(ids: Sequence[int], handle: Callable[[Sequence[int]], int], *, label: str, using: str) -> int:
    """Call ``handle`` with all of ``ids`` in one transaction; the sum of what it answers.

    When the database refuses, the halves are tried each in a transaction of its own, down to the rows to blame,
    which are logged and left. Raises what an outage raises.
    """
    try:
        with transaction.atomic(using=using):
            return handle(ids)
    except DatabaseError as error:
        if isinstance(error, OUTAGE) and not sqlstate(error).startswith(_LIMIT_EXCEEDED):
            raise
        if len(ids) == 1:
            logger.exception("%s %s cannot be handled and is left as it is; the others go on", label, ids[0])
            return 0
    middle = len(ids) // 2
    return sum(handle_all(half, handle, label=label, using=using) for half in (ids[:middle], ids[middle:]))
