"""Database connections in worker processes: whose they are, how they recover, and how a handler's is put back.

Each bookkeeping thread uses the connection that Django gives that thread; handlers run in other threads,
so the two never meet.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from pgjobs import sessions

Result = TypeVar("Result")

OUTAGE = (OperationalError, InterfaceError)
"""What Django raises when the server or the connection is gone (and for a few passing faults)."""

_TRANSIENT = {"40001", "40P01"}  # serialization failure, deadlock: nothing was done, try again
_OTHER_TABLES = {"42P01", "42883", "42703"}  # undefined table, function, column
_OVERSTAYED = {"25P03", "25P04", "57P05"}  # time-outs of idle transactions, transactions and idle sessions
_TRIES = 8
_BRIEFLY = "50ms"


def rows(using: str, sql: str, params: dict[str, Any], *, often: bool = False) -> list[tuple[Any, ...]]:
    """Run one statement and return what it returns. A statement of its own is :func:`retrying`.

    ``often``: as :func:`pgjobs.sessions.answered` has it.
    """

    return retrying(using, lambda: sessions.answered(using, sql, params, _all, often=often))


def row(using: str, sql: str, params: Sequence[Any] | dict[str, Any]) -> tuple[Any, ...]:
    """The first row of a statement that returns one; otherwise as :func:`rows`."""

    return retrying(using, lambda: cast("tuple[Any, ...]", sessions.answered(using, sql, params, _first)))


def _all(cursor: Any) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.pgresult.nfields else []  # cursor.description costs more


def _first(cursor: Any) -> Any:
    return cursor.fetchone()


def retrying(using: str, work: Callable[[], Result]) -> Result:
    """Do ``work``, a statement or transaction of its own, again when it met a deadlock or a serialization failure.

    Databases whose default isolation is stricter than READ COMMITTED raise those for SKIP LOCKED too. Inside a
    transaction of the caller's it is not repeated: that transaction is spoilt.
    """
    for tried in range(_TRIES):
        try:
            return work()
        except DatabaseError as error:
            state = sqlstate(error)
            gone = state in sessions.UNKNOWN_STATEMENT and sessions.keep_no_longer(using, state)
            if tried == _TRIES - 1 or _of_the_caller(using):
                raise
            if gone:
                continue  # it was refused before it began
            if state not in _TRANSIENT:
                raise
        # Rivals that collided would collide again if they came back in step.
        time.sleep(random.uniform(0, 0.01 * 2**tried))
    raise AssertionError("unreachable")


def _of_the_caller(using: str) -> bool:
    """Whether there is a transaction that the caller ends: a block of Django's, or autocommit turned off."""
    connection = connections[using]
    return connection.in_atomic_block or not connection.autocommit


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's five-character code of a Django database error, or an empty string."""
    return getattr(error.__cause__, "sqlstate", None) or ""


def is_outage(error: BaseException) -> bool:
    """Whether the server is away, full, shutting down or read-only for now: what failed is to be tried again.

    Django raises a read-only window, for one, as InternalError.
    """
    if isinstance(error, OUTAGE):
        return True
    return isinstance(error, DatabaseError) and sqlstate(error)[:2] in {"08", "25", "53", "57", "58"}


def cut_off(error: BaseException, session: Any) -> bool:
    """Whether the server was away when a transaction was opened (``session`` is None), or has gone away from under it.

    Gone by itself: a transaction that it ended for having idled or lasted too long is its owner's doing.
    """
    if session is None:
        return is_outage(error)
    return isinstance(error, OUTAGE) and bool(session.closed) and sqlstate(error) not in _OVERSTAYED


def migration(error: BaseException, using: str) -> str:
    """What to do where a table, function or column that this code knows is not there; empty for other errors."""
    if sqlstate(error) not in _OTHER_TABLES:
        return ""
    what = str(error).partition("\n")[0]
    return f"{not_migrated(using)} ({what})"


def not_migrated(using: str) -> str:
    """That the tables are not those of this code, with the cure."""
    option = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
    return (
        f"The tables of pgjobs are not in database {using!r}, or are of another version than this code: run "
        f"manage.py migrate{option}."
    )


def passing(error: BaseException) -> bool:
    """Whether a transaction met a deadlock or a serialization failure: the same again may well succeed."""
    return isinstance(error, DatabaseError) and sqlstate(error) in _TRANSIENT


def brief_locks(using: str, limit: str = _BRIEFLY) -> None:
    """For the rest of this transaction, give up on a lock that somebody holds for more than a moment.

    A transaction of the project's that has signalled, decided or cancelled holds rows until it commits; the one
    thread that writes for a whole process must not stand still for it.
    """
    rows(using, "SELECT set_config('lock_timeout', %(limit)s, true)", {"limit": limit})


def busy(error: BaseException) -> bool:
    """Whether a lock was not to be had in time: nothing was done, and others need not wait."""
    return isinstance(error, DatabaseError) and sqlstate(error) == "55P03"


def still_in_transaction(using: str, session: Any, number: str) -> bool:
    """Whether this thread's ``atomic()`` block still runs in its transaction, ``number``, begun on ``session``.

    A handler may have closed or replaced the connection, or sent COMMIT or ROLLBACK by hand: Django then leaves
    the block in silence, or goes on outside any transaction, or in another one.
    """
    connection = connections[using]
    if connection.connection is not session or session.closed or not connection.in_atomic_block:
        return False
    status = session.info.transaction_status.name
    if status != "INTRANS":
        return bool(status == "INERROR")  # whose error is told by the next statement
    return rows(using, "SELECT pg_current_xact_id_if_assigned()::text", {}) == [(number,)]


def drop(using: str) -> None:
    """Close this thread's connection, whatever state it is in; the next statement opens a new one."""
    connection = connections[using]
    try:
        connection.close()
    except (DatabaseError, InterfaceError):
        connection.connection = None


def quiet(using: str) -> None:
    """Keep DEBUG from collecting the statements of this thread for ever."""
    connections[using].queries_log = deque(maxlen=0)


def release_handler_connections(keep: Callable[[BaseDatabaseWrapper], bool] | None = None) -> list[str]:
    """Close every connection that a handler used in this thread, and say in words what it had left behind.

    Closing is the only reset that covers an open transaction, a broken one, autocommit off, session settings,
    advisory locks and temporary tables alike. A connection on which nothing was left open is offered to ``keep``
    first; it answers whether it has taken care of it.
    """
    problems: list[str] = []
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            _forget_atomic_blocks(connection)
            continue
        before = len(problems)
        if connection.in_atomic_block:
            problems.append(f"an atomic block open on {connection.alias!r}")
        elif not connection.autocommit:
            problems.append(f"autocommit off on {connection.alias!r}")
        elif _in_transaction(connection):
            problems.append(f"a transaction open on {connection.alias!r}")
        if len(problems) == before and keep is not None and keep(connection):
            continue
        _forget_atomic_blocks(connection)
        if connection.vendor == "postgresql" and "pool" in connection.settings_dict.get("OPTIONS", {}):
            _discard_session_state(connection)
        drop(connection.alias)
    return problems


def _in_transaction(connection: BaseDatabaseWrapper) -> bool:
    if connection.vendor != "postgresql":
        return False  # closing is all that can be done for other databases
    raw: Any = connection.connection
    return not raw.closed and raw.info.transaction_status.name not in ("IDLE", "UNKNOWN")


def _forget_atomic_blocks(connection: BaseDatabaseWrapper) -> None:
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.closed_in_transaction = False
    connection.run_on_commit = []


def _discard_session_state(connection: BaseDatabaseWrapper) -> None:
    # A pooled connection lives on under the next borrower, SET and advisory locks included.
    raw: Any = connection.connection
    try:
        raw.rollback()
        raw.autocommit = True
        raw.execute("DISCARD ALL")
    except Exception:
        raw.close()


def protect_from_forks() -> None:
    """In a forked child, forget inherited connections: closing one there would end the parent's session."""
    os.register_at_fork(after_in_child=_forget_inherited)


def _forget_inherited() -> None:
    for connection in connections.all(initialized_only=True):
        connection.connection = None
