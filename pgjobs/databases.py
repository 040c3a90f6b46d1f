"""Says in the log what is no part of one commit, where a project has more databases than the queue's.

Once for each place and process: what a project does in every job it knows after the first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections

logger = logging.getLogger("pgjobs.databases")

_WRITE = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|MERGE|COPY)\b", re.IGNORECASE)
_told: set[tuple[str, str]] = set()


@contextmanager
def covering(using: str, call: str, name: str) -> Iterator[None]:
    """While ``call`` of ``name`` has a transaction open on ``using``: warn of this thread's writes elsewhere."""

    def watch(alias: str) -> Callable[..., Any]:
        def execute(run: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
            if isinstance(sql, str) and _WRITE.match(sql):
                _say(
                    (call, name),
                    f"{name} writes to database {alias!r} inside {call}, which commits on {using!r} alone: a crash "
                    f"in between leaves one without the other. Route that app to {using!r}, or make the write safe "
                    f"to repeat.",
                )
            return run(sql, params, many, context)

        return execute

    with ExitStack() as watching:
        for alias in connections.settings:
            if alias != using:
                watching.enter_context(connections[alias].execute_wrapper(watch(alias)))
        yield


def warn_if_committed_apart(using: str, call: str, name: str) -> None:
    """Warn when the caller's transaction is on another database, so that ``call`` is visible before its commit."""
    if len(connections.settings) < 2 or connections[using].in_atomic_block:
        return
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            _say(
                (call, name),
                f"{call} of {name} commits on {using!r} at once; the transaction open on {connection.alias!r} may "
                f"still be rolled back. Use transaction.on_commit(...), or open a transaction on {using!r}.",
            )
            return


def _say(place: tuple[str, str], message: str) -> None:
    if place not in _told:
        _told.add(place)
        logger.warning(message)
