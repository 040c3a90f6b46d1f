"""A service that writes in groups: whatever was asked for while one write was under way goes into the next."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from pgjobs import connections
from pgjobs.worker import clock
from pgjobs.worker.service import Service

Request = TypeVar("Request")

_GROUP = 500
_LINGER = 2.0  # seconds without work after which the connection is given up: at rest a process holds few
_MOMENT = 0.05  # seconds before what was locked elsewhere is tried again
_FOREVER = 3600.0


class GroupWriter(Service, Generic[Request]):
    """Takes requests from any thread and writes them in the order they came.

    An outage only delays them: what met it stays in hand and goes first next time.
    """

    def __init__(self, using: str) -> None:
        super().__init__(using)
        self._requests: deque[Request] = deque()
        self._in_hand: list[Request] = []
        self._deferred: list[Request] = []
        self._worked_at: float | None = None
        """When something was last written on the present connection."""
        self._expected_at: float | None = None
        """When to be ready for requests that will come."""
        self._empty = threading.Event()
        self._empty.set()

    def put(self, request: Request) -> None:
        """Take a request in; never blocks on the database."""
        self._requests.append(request)
        if self._empty.is_set():
            self._empty.clear()  # in this order: the tick that the wake brings sets it again
        self.wake()

    def expect(self) -> None:
        """There will be requests: be :meth:`ready` in a moment, when whoever else was woken has had its turn.

        Never blocks on the database.
        """
        if self._worked_at is None and self._expected_at is None:
            self._expected_at = clock.now() + _MOMENT
            self.wake()

    def ready(self) -> None:
        """Connect, and have planned what will be asked for: on a fresh session that takes far longer than the write."""

    def needed(self) -> bool:
        """Whether there may be requests before long, so that the connection is kept."""
        return False

    def defer(self, request: Request) -> None:
        """From within :meth:`write`: a row of this request is locked by somebody; try it again in a moment."""
        self._deferred.append(request)

    def wait_empty(self, timeout: float) -> bool:
        """Wait until everything is written; False when the database did not take it in time."""
        return self._empty.wait(timeout)

    def write(self, group: list[Request]) -> None:
        """Write a group. Raises on an outage, and is then called again with the same group."""
        raise NotImplementedError

    def tick(self) -> None:
        """Write until nothing is left but what is locked elsewhere."""
        self._ready_if_due()
        self._requests.extend(self._deferred)
        self._deferred = []
        while self._in_hand or self._requests:
            while self._requests and len(self._in_hand) < _GROUP:
                self._in_hand.append(self._requests.popleft())
            self._worked_at = clock.now()
            self.write(self._in_hand)
            self._in_hand = []
        if self._deferred:
            self.interval = _MOMENT
            return
        self._empty.set()
        if self._requests:
            self._empty.clear()
            self.wake()
        elif self._worked_at is not None and clock.now() - self._worked_at >= _LINGER and not self.needed():
            connections.drop(self.using)
            self._worked_at = None
        self.interval = _FOREVER if self._worked_at is None else _LINGER
        if self._expected_at is not None:
            self.interval = max(self._expected_at - clock.now(), 0.0)

    def _ready_if_due(self) -> None:
        if self._expected_at is None:
            return
        if self._worked_at is None and not self._requests:
            if clock.now() < self._expected_at:
                return
            self._worked_at = clock.now()
            self.ready()
        self._expected_at = None

    def last_tick(self) -> None:
        """The same: nothing is left behind."""
        self.tick()
