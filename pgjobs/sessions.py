"""Sessions that keep statements: planned once, then sent by name. Of a lone claim, planning is nearly half.

A statement that is kept belongs to one server process. Behind a pooler the next transaction may be another process's,
so Django keeps none unless ``OPTIONS`` name a ``prepare_threshold``; then those of pgjobs are kept too. A worker does
so on its bookkeeping sessions by itself, where it has made sure that no pooler is between.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from pgjobs.conf import get_settings

if TYPE_CHECKING:
    import psycopg

Result = TypeVar("Result")

logger = logging.getLogger("pgjobs.sessions")

_CHANGED = "0A000"
UNKNOWN_STATEMENT = {"26000", "42P05", _CHANGED}
"""No statement of that name; one is there already; its result would have other columns than when it was planned."""

_AFTER = 4  # uses
_KEPT = 32  # statements; a plan of a claim takes the server some 200 kB

PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
"""Settings of a worker's session that keeps statements.

A plan must not depend on the moment it was made in: by index, whatever the size of the table was then. What a scan
without index is then taken to cost would have the rest compiled, which takes a second.
"""
_PLAN_SO = (
    f"SELECT {', '.join(f'set_config({name!r}, {value!r}, false)' for name, value in PLANNING.items())} "  # noqa: S608
    "FROM pg_backend_pid() AS pid WHERE pid = %s"
)

_OWN = "pgjobs_cursor"  # of a connection of psycopg's, the cursor that goes with it
_keepers = threading.local()
_refused = threading.Event()
"""Set once a statement was gone that this process had left on a session: something is between, whatever it said."""


def is_direct(session: psycopg.Connection[Any]) -> bool:
    """Whether the server process behind the session is the one it was introduced to: a pooler makes a number up."""
    found = session.execute("SELECT pg_backend_pid()").fetchone()
    return found is not None and found[0] == session.info.backend_pid


def keep_statements(using: str) -> None:
    """From now on, keep statements on the sessions that this thread opens to ``using``, where that is possible."""
    _keepers.using = using


def answered(
    using: str, sql: str, params: Any, answer: Callable[[Any], Result], *, often: bool = False
) -> Result:
    """Execute a statement, in full or by its name, and return what ``answer`` reads from the cursor.

    One that is sent ``often`` is kept from its first use, others when they have shown that they come again: to keep
    one takes a round trip. Where Django collects what is sent (``DEBUG``) all is sent in full, which it can show.
    """
    connection = connections[using]
    connection.close_if_health_check_failed()
    if connection.connection is None:
        connection.ensure_connection()
    if not keeps(using) or connection.queries_logged:
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            return answer(cursor)
    connection.validate_thread_sharing()
    raw: Any = connection.connection
    cursor = connection.make_cursor(_cursor(connection))
    usual = raw.prepare_threshold
    raw.prepare_threshold = 0 if often else usual
    try:
        cursor.execute(sql, params)
    finally:
        raw.prepare_threshold = usual
    return answer(cursor)


def _cursor(connection: BaseDatabaseWrapper) -> Any:
    """The one cursor of a session that sends parameters apart from the text: to make one takes a tenth of an INSERT."""
    from django.db.backends.postgresql.base import ServerBindingCursor  # loads the driver

    raw: Any = connection.connection
    cursor = getattr(raw, _OWN, None)
    if cursor is None or cursor.closed:
        usual, raw.cursor_factory = raw.cursor_factory, ServerBindingCursor
        try:
            with connection.wrap_database_errors:
                cursor = connection.create_cursor()
        finally:
            raw.cursor_factory = usual
        setattr(raw, _OWN, cursor)
    return cursor


def keeps(using: str) -> bool:
    """Whether this thread's session keeps statements."""
    return getattr(connections[using].connection, "prepare_threshold", None) is not None


def keep_no_longer(using: str, refusal: str) -> bool:
    """Send everything in full from now on; whether that is a change for this thread's session.

    On this session alone after a change of the schema; in the whole process when a statement was not there.
    """
    if not keeps(using):
        return False
    if refusal != _CHANGED and not _refused.is_set():
        logger.warning("a statement kept on a session of %r is gone: nothing is kept from now on", using)
        _refused.set()
    raw: Any = connections[using].connection
    raw.prepare_threshold = None
    return True


def _opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.alias != getattr(_keepers, "using", None) or _refused.is_set():
        return
    # Who borrows a session of a pool next did not ask for what is set here.
    if not get_settings().prepare or "pool" in connection.settings_dict["OPTIONS"]:
        return
    raw: Any = connection.connection
    with connection.cursor() as plain:
        plain.execute(_PLAN_SO, [raw.info.backend_pid])
        if plain.fetchone():
            raw.prepare_threshold, raw.prepared_max = _AFTER, _KEPT


connection_created.connect(_opened, dispatch_uid="pgjobs.sessions")
