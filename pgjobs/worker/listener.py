"""The LISTEN connection: wakes the claim loop, proves that it hears, and says when only polling is left."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from django.db import connections

from pgjobs.backoff import Backoff
from pgjobs.conf import get_settings
from pgjobs.connections import drop, is_direct, rows
from pgjobs.queue.enqueue import CHANNEL
from pgjobs.sessions import is_direct
from pgjobs.worker import clock
from pgjobs.worker.service import Service

logger = logging.getLogger("pgjobs.worker")

_PROBE_EVERY = 30.0
_PROBE_WAIT = 2.0
_LISTEN_AGAIN = Backoff(base=5, cap=300, jitter=0.2)
"""Waits after a probe that nobody heard: a busy server calms down soon, a pooler rarely goes away."""


class Listener(Service):
    """Hears NOTIFY on a connection of its own. A notification is only a hint; losing one costs a poll interval."""

    name = "listener"
    interval = 0.0

    def __init__(self, using: str, on_notify: Callable[[], None]) -> None:
        super().__init__(using)
        self.hearing = False
        """Whether the last probe came back."""
        self._alias = get_settings().listen_database or using
        self._on_notify = on_notify
        self._connection: psycopg.Connection[Any] | None = None
        self._own = f"{CHANNEL}_probe_{secrets.token_hex(6)}"
        self._probe_due = 0.0
        self._probes_itself = False
        self._unheard = 0

    def tick(self) -> None:
        """Wait a while for notifications, and probe when it is time."""
        self.interval = 0.0
        try:
            listening = self._connection or self._connect()
            if clock.now() >= self._probe_due and not self._probe(listening):
                self._give_up(listening)
                return
            for _ in listening.notifies(timeout=1.0, stop_after=1):
                self._on_notify()
        except BaseException:
            self._disconnect()
            raise

    def last_tick(self) -> None:
        """Close the connection."""
        self._disconnect()

    def _connect(self) -> psycopg.Connection[Any]:
        """Listen for the probe alone, unless no pooler is between: there LISTEN would stay on others' sessions."""
        wrapper: Any = connections[self._alias]
        # Prepared statements belong to a session, and behind a pooler there is none.
        params = {**wrapper.get_connection_params(), "prepare_threshold": None}
        params.pop("cursor_factory", None)
        listening = psycopg.connect(**params, autocommit=True)
        self._connection = listening
        listening.execute(f"LISTEN {self._own}")
        self._probes_itself = self._alias == self.using and is_direct(listening)
        if self._probes_itself:
            self._listen(listening)
        self._probe_due = 0.0
        return listening

    def _listen(self, listening: psycopg.Connection[Any]) -> None:
        listening.execute(f"LISTEN {CHANNEL}")
        self._on_notify()  # whatever was sent while nobody listened

    def _probe(self, listening: psycopg.Connection[Any]) -> bool:
        """Send a notification on the way that enqueue takes, and see whether it comes. Turns ``hearing``.

        Through a pooler one's own session proves nothing: the server answers it at once, and others never.
        """
        if self._probes_itself:
            listening.execute(f"NOTIFY {self._own}")
        else:
            rows(self.using, f"NOTIFY {self._own}", {})
            drop(self.using)
        heard = self._wait_for_probe(listening)
        self._probe_due = clock.now() + _PROBE_EVERY
        if heard and not self.hearing and not self._probes_itself:
            self._listen(listening)
        self.hearing = heard
        return heard

    def _wait_for_probe(self, listening: psycopg.Connection[Any]) -> bool:
        until = clock.now() + _PROBE_WAIT
        while not self.stopping and (left := until - clock.now()) > 0:
            for notification in listening.notifies(timeout=left, stop_after=1):
                if notification.channel == self._own:
                    return True
                self._on_notify()
        return False

    def _give_up(self, listening: psycopg.Connection[Any]) -> None:
        """Leave the work to polling, say so once, and come back later."""
        self._unheard += 1
        self.interval = _LISTEN_AGAIN.delay(self._unheard)
        if self._unheard == 1 and not self.stopping:
            logger.warning("listener hears nothing of its own probe; polling does the work. %s", self._cure())
        with suppress(psycopg.Error):
            listening.execute("UNLISTEN *")
        self._disconnect()

    def _cure(self) -> str:
        if self._alias != self.using:
            return (
                f"PGJOBS['LISTEN_DATABASE'] is {self._alias!r}: give that alias the database of {self.using!r} "
                f"at the server's own address."
            )
        return (
            "Behind a pooler in transaction mode, set PGJOBS['LISTEN_DATABASE'] to an alias with the server's own "
            "address, or PGJOBS['NOTIFY'] = False to stop trying."
        )

    def _disconnect(self) -> None:
        self.hearing = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
