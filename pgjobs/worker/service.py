"""One lifecycle for every background part: a thread that ticks, survives outages, and stops when asked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg
from django.db import Error

from pgjobs import connections, sessions
from pgjobs.backoff import Backoff

logger = logging.getLogger("pgjobs.worker")

RECONNECT = Backoff(base=0.2, cap=10, jitter=0.3)
"""Waits between tries while the database is away: short at first, since most restarts take a second or two."""

_PASSING = (Error, psycopg.Error, OSError)  # the world's doing, not the program's
_BROKEN_AFTER = 8  # failures in a row; with the usual waits between them about half a minute


def _nobody() -> None:
    """Nobody listens."""


class Service:
    """A thread that calls :meth:`tick` every ``interval`` seconds, or at once when woken.

    A tick that raises never ends the thread: its connection is dropped and the next tick comes after a backoff.
    """

    name = "service"
    interval = 1.0
    reconnect = RECONNECT
    """Waits after ticks that failed."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.failures = 0
        self.on_turn: Callable[[], None] = _nobody
        """Told before each tick, whatever the last one came to."""
        self.on_broken: Callable[[], None] = _nobody
        """Told when ticks keep failing for another reason than the database: a fresh process may do better."""
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pgjobs-{self.name}", daemon=True)

    @property
    def stopping(self) -> bool:
        """Whether the service was asked to stop."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin to tick."""
        self._thread.start()

    def wake(self) -> None:
        """Tick now."""
        if not self._wake.is_set():  # to set it takes a lock, also where it is set
            self._wake.set()

    def stop(self) -> None:
        """Ask for the end; the tick in progress is finished, and :meth:`last_tick` comes after it."""
        self._stopping.set()
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when it did not come in time."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def tick(self) -> None:
        """One round of work."""
        raise NotImplementedError

    def last_tick(self) -> None:
        """After the last tick, before the connection is closed."""

    def _run(self) -> None:
        connections.quiet(self.using)
        sessions.keep_statements(self.using)
        while not self.stopping:
            self._wake.clear()
            if not self.stopping:
                self.on_turn()
                self._wake.wait(self._contained(self.tick))
        self._contained(self.last_tick)
        connections.drop(self.using)

    def _contained(self, work: object) -> float:
        """Call ``work`` and answer how long to wait before the next tick."""
        try:
            work()  # type: ignore[operator]
        except Exception as error:
            connections.drop(self.using)
            self.failures += 1
            self._report(error)
            if self.failures >= _BROKEN_AFTER and not isinstance(error, _PASSING):
                self.on_broken()
            return self.reconnect.delay(self.failures)
        if self.failures:
            logger.warning("service=%s recovered after %s failures", self.name, self.failures)
            self.failures = 0
        return self.interval

    def _report(self, error: Exception) -> None:
        # Once in full, then only at powers of two: an outage must not fill the log.
        if self.failures & (self.failures - 1):
            return
        passing = isinstance(error, _PASSING)
        logger.log(
            logging.WARNING if passing else logging.ERROR,
            "service=%s failures=%s error=%s",
            self.name,
            self.failures,
            error,
            exc_info=None if passing else error,
        )
