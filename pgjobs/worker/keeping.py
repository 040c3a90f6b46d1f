"""Sessions that short jobs left clean, kept for the jobs that follow: to reset one costs far less than to open one.

Between two jobs a session belongs to no thread: who needs one next takes it, one that nobody takes is closed, and a job
without a query holds none. Django connects as ever (it prepares the session, and tells ``connection_created``); only
where the session comes from differs. Behind a pooler nothing is kept: a session there is the pooler's, it may be one
that others wait for, and what the reset says would reach theirs.
"""

from __future__ import annotations

import functools
import math
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper

from pgjobs.sessions import is_direct
from pgjobs.worker import clock

SHORT = 1.0
"""Seconds: after a job that ran longer, to open a session is no matter, and one that was silent so long may be cut."""

_LINGER = 2.0
_OLDEST = 600.0  # seconds, where CONN_MAX_AGE is 0: a server process grows with what it has seen
_PIPELINE_OFF = 0


@dataclass(slots=True, eq=False)
class _Session:
    raw: psycopg.Connection[Any]
    traits: tuple[object, ...]
    born: float = field(default_factory=clock.now)
    direct: bool = False
    """Whether no pooler was found between."""
    params: dict[str, Any] | None = None
    """What it was opened with."""
    given_at: float = 0.0


class _Thread(threading.local):
    def __init__(self) -> None:
        self.sessions: dict[str, _Session] = {}
        """By alias, what Django has connected to in this thread last."""


_thread = _Thread()
_lock = threading.Lock()
_kept: dict[str, list[_Session]] = {}
_pooled: set[str] = set()
"""Aliases with a pooler between. Where none is, each session is asked: one may be put there while this runs."""
_begun = threading.Event()


def begin() -> None:
    """From here on sessions are kept in this process. Who calls this calls :func:`give_up` now and then."""
    _begun.set()


def end() -> None:
    """Keep none any more."""
    _begun.clear()
    give_up(idle=0)


def opened(connection: BaseDatabaseWrapper) -> None:
    """Django has connected, in this thread."""
    raw: Any = connection.connection
    known = _thread.sessions.get(connection.alias)
    if connection.vendor == "postgresql" and (known is None or known.raw is not raw):
        _thread.sessions[connection.alias] = _Session(raw, _traits(raw))


def keep(connection: BaseDatabaseWrapper) -> bool:
    """Reset the session of a connection and keep it; False where it is to be closed.

    Nothing may be open on it: neither a transaction nor a block of Django's.
    """
    session = _thread.sessions.pop(connection.alias, None)
    named_cursors = vars(connection).pop("_named_cursor_idx", 0)  # of iterator(): Django counts them
    if named_cursors:
        return False  # one that the job left would be closed late, and spoil a transaction of the next
    if session is None or not _begun.is_set() or not _fit(connection, session):
        return False
    try:
        if not _reached(connection.alias, session):
            return False
        session.raw.execute("DISCARD ALL")
    except psycopg.Error:
        return False
    if session.params is None:
        session.params = connection.get_connection_params()
    connection.connection = None
    if "get_new_connection" not in vars(connection):
        taking: Any = functools.partial(_take_or, connection.get_new_connection, connection)
        connection.get_new_connection = taking  # type: ignore[method-assign]
    session.given_at = clock.now()
    with _lock:
        _kept.setdefault(connection.alias, []).append(session)
    return True


def give_up(idle: float = _LINGER) -> None:
    """Close the sessions that nobody has taken for ``idle`` seconds. For any thread."""
    if not _kept:
        return
    until = clock.now() - idle
    with _lock:
        given_up = [each for kept in _kept.values() for each in kept if each.given_at <= until]
        left = {name: [each for each in kept if each.given_at > until] for name, kept in _kept.items()}
        _kept.clear()
        _kept.update({name: kept for name, kept in left.items() if kept})
    for session in given_up:
        session.raw.close()


def _fit(connection: BaseDatabaseWrapper, session: _Session) -> bool:
    """Whether a reset by the server makes it as good as new: its own side is as it was, and it is not too old."""
    raw, most = session.raw, connection.settings_dict["CONN_MAX_AGE"]
    most = math.inf if most is None else most or _OLDEST
    return (
        connection.connection is raw
        and not raw.closed
        and raw.pgconn.pipeline_status == _PIPELINE_OFF
        and raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        and not connection.errors_occurred
        and not connection.run_on_commit
        and "pool" not in connection.settings_dict["OPTIONS"]
        and raw.prepare_threshold is None  # what was prepared would be gone, and psycopg not know it
        and _traits(raw) == session.traits
        and clock.now() - session.born < most
    )


def _traits(raw: Any) -> tuple[object, ...]:
    """What a handler may have set on the client's side of a session."""
    names = ("autocommit", "isolation_level", "read_only", "deferrable", "row_factory", "cursor_factory")
    return tuple(getattr(raw, name) for name in names)


def _reached(alias: str, session: _Session) -> bool:
    """Whether what the reset says reaches this session and no other, and leaves it who it was.

    One that acts for another role, be it since its login, is not kept: ``DISCARD ALL`` forgets such a role in releases
    of PostgreSQL before November 2024.
    """
    if not session.direct and alias not in _pooled:
        session.direct = is_direct(session.raw)
        if not session.direct:
            _pooled.add(alias)
        elif session.raw.execute("SELECT current_user <> session_user").fetchone() != (False,):
            return False
    return session.direct


def _take_or(
    connect: Callable[[dict[str, Any]], Any], connection: BaseDatabaseWrapper, params: dict[str, Any]
) -> Any:
    """A session that was kept, in place of Django's ``get_new_connection``; a new one where there is none.

    Those that were opened with other parameters are closed: where the password is a new one each time, nobody would
    take them, and every job would leave one more.
    """
    ask = connection.settings_dict["CONN_HEALTH_CHECKS"]
    while session := _take(connection.alias):
        if session.params == params and _lives(session.raw, ask=ask):
            _thread.sessions[connection.alias] = session
            return session.raw
        session.raw.close()
    return connect(params)


def _take(alias: str) -> _Session | None:
    """The one that was given last, so that those that are too many are given up."""
    with _lock:
        kept = _kept.get(alias)
        return kept.pop() if kept else None


def _lives(raw: psycopg.Connection[Any], *, ask: bool) -> bool:
    """Whether the server has not ended it: it says so unasked. Without ``ask`` this costs no round trip."""
    look = select.poll()
    look.register(raw.fileno(), select.POLLIN)
    if look.poll(0):
        return False
    try:
        if ask:
            raw.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


def _forget_inherited() -> None:
    """In a forked child: the sessions are the parent's, and another thread may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()
    _thread.sessions.clear()


os.register_at_fork(after_in_child=_forget_inherited)
