"""The LISTEN connection: wakes the claim loop, proves to itself that it hears, and says when only polling is left."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connections

from pgjobs.queue.enqueue import CHANNEL
from pgjobs.worker import clock
from pgjobs.worker.service import Service

logger = logging.getLogger("pgjobs.worker")

_PROBE_EVERY = 30.0
_PROBE_WAIT = 2.0


class Listener(Service):
    """Hears NOTIFY on a connection of its own. A notification is only a hint; losing one costs a poll interval."""

    name = "listener"
    interval = 0.0

    def __init__(self, using: str, on_notify: Callable[[], None]) -> None:
        super().__init__(using)
        self.hearing = False
        """Whether the last probe came back."""
        self._on_notify = on_notify
        self._connection: psycopg.Connection[Any] | None = None
        self._own = f"{CHANNEL}_probe_{secrets.token_hex(6)}"
        self._probe_due = 0.0
        self._deaf_reported = False

    def tick(self) -> None:
        """Wait a while for notifications, and probe when it is time."""
        try:
            listening = self._connection or self._connect()
            if clock.now() >= self._probe_due:
                self._probe(listening)
            for _ in listening.notifies(timeout=1.0, stop_after=1):
                self._on_notify()
        except BaseException:
            self._disconnect()
            raise

    def last_tick(self) -> None:
        """Close the connection."""
        self._disconnect()

    def _connect(self) -> psycopg.Connection[Any]:
        wrapper: Any = connections[self.using]
        params = {**wrapper.get_connection_params(), "prepare_threshold": None}
        params.pop("cursor_factory", None)
        listening = psycopg.connect(**params, autocommit=True)
        self._connection = listening
        listening.execute(f"LISTEN {CHANNEL}")
        listening.execute(f"LISTEN {self._own}")
        self._probe_due = 0.0
        self._on_notify()  # whatever was sent while nobody listened
        return listening

    def _probe(self, listening: psycopg.Connection[Any]) -> None:
        """Send a notification to ourselves. Behind a pooler LISTEN succeeds and hears nothing."""
        listening.execute(f"NOTIFY {self._own}")
        heard = False
        until = clock.now() + _PROBE_WAIT
        while not heard and not self.stopping and (left := until - clock.now()) > 0:
            for notification in listening.notifies(timeout=left, stop_after=1):
                if notification.channel == self._own:
                    heard = True
                else:
                    self._on_notify()
        self._probe_due = clock.now() + _PROBE_EVERY
        self.hearing = heard
        if heard:
            self._deaf_reported = False
        elif not self.stopping:
            self._deaf()

    def _deaf(self) -> None:
        if not self._deaf_reported:
            self._deaf_reported = True
            logger.warning(
                "listener hears nothing of its own probe (a pooler in transaction mode?); polling does the work. "
                "Set PGJOBS['NOTIFY'] = False to stop trying."
            )
        raise psycopg.OperationalError("the probe was not heard")

    def _disconnect(self) -> None:
        self.hearing = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
