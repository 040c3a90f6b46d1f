"""Handlers that run past their timeout: first asked, then, when they do not come back, reported as stuck."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from pgjobs.exceptions import JobTimeout
from pgjobs.worker import clock
from pgjobs.worker.holdings import Holding

logger = logging.getLogger("pgjobs.worker")

Answer = TypeVar("Answer")


def enforce(holdings: list[Holding], stuck_grace: float) -> list[Holding]:
    """Raise :class:`JobTimeout` in plain handlers whose time is up; return those that ignore it for ``stuck_grace``.

    The exception arrives at the next bytecode. A call into C that does not return cannot be interrupted: only
    another process can be.
    """
    stuck = []
    now = clock.now()
    for holding in holdings:
        deadline = holding.deadline
        if deadline is None or holding.ended or now < deadline:
            continue
        if not holding.timed_out:
            _interrupt(holding, deadline)
        elif now > deadline + stuck_grace:
            stuck.append(holding)
    return stuck


class _Late(JobTimeout):
    """:class:`JobTimeout` as it can be raised from outside: made without arguments."""

    def __init__(self) -> None:
        Exception.__init__(self, "the handler ran longer than its timeout")


_interrupting = threading.Lock()


def _interrupt(holding: Holding, deadline: float) -> None:
    with _interrupting:
        if holding.deadline != deadline:
            return  # what it bounded has ended meanwhile
        holding.timed_out = True
        # Async handlers are bounded by asyncio.timeout in the executor.
        if holding.task is None and (thread_id := holding.thread_id) is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(_Late))
    logger.warning("%s=%s ran past its timeout and was interrupted", *holding.place)


def bounded(holding: Holding, seconds: float | None, work: Callable[[], Answer]) -> Answer:
    """What ``work`` returns. Raises :class:`JobTimeout` in it when that takes longer, and never in what comes after.

    No context manager: one that is interrupted where it is called to leave would not be left.
    """
    if seconds is None:
        return work()
    holding.thread_id = threading.get_ident()
    holding.deadline = clock.now() + seconds
    try:
        return work()
    except _Late as late:
        raise JobTimeout(holding.lease.pk, seconds).with_traceback(late.__traceback__) from None
    finally:
        bound = True
        while bound:
            try:
                _unbind(holding)
                bound = False
            except _Late:  # here of all places, or at its door: what it was to end has ended by itself
                pass


def _unbind(holding: Holding) -> None:
    with _interrupting:
        holding.deadline = holding.thread_id = None
        if holding.timed_out:
            holding.timed_out = False
            _receive()


def _receive() -> None:
    """Have the exception arrive here, if it has not: it must not arrive in what comes next.

    It is not taken back, which up to CPython 3.12 leaves the mark for ever that one is on its way: from then on every
    thread of the process looks for it at each call, and a traced one, as under coverage, on 3.11 does nothing else.
    """
    try:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(threading.get_ident()), ctypes.py_object(_Late)
        )
        while True:
            pass
    except _Late:
        pass
