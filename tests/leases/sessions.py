"""Second and third sessions for tests of races: threads with a Django connection of their own, seen from outside."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connections, transaction

from pgjobs.queue.models import Job
from tests.support.own_database import QUEUE, connection
from tests.support.waiting import wait_until

T = TypeVar("T")


class Session:
    """One thread, one connection, one thing at a time."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.name = name
        self.paused: list[Paused] = []
        self.pid = self.run(_backend_pid)

    def start(self, action: Callable[..., T], *args: Any, **kwargs: Any) -> "Future[T]":
        return self._thread.submit(action, *args, **kwargs)

    def run(self, action: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return self.start(action, *args, **kwargs).result(timeout=30)

    def wait_blocked(self) -> None:
        """Returns once the session waits for a lock that another one holds."""
        wait_until(lambda: blockers(self.pid), message=f"{self.name} to wait for a lock")

    def close(self) -> None:
        try:
            self.run(connections.close_all)
        finally:
            self._thread.shutdown()


class Paused:
    """An action that runs in a session until it calls `pause()`, and goes on when it is told to."""

    def __init__(self, session: Session, action: Callable[[Callable[[], None]], Any]) -> None:
        self._session = session
        self._go_on = threading.Event()
        self._arrived = threading.Event()
        session.paused.append(self)
        self._ended = session.start(self._run, action)
        if not self._arrived.wait(30):
            raise AssertionError(
                f"{session.name} did not come to its pause; it waits for {blockers(session.pid)}"
            )
        if self._ended.done():
            self._ended.result()

    def _run(self, action: Callable[[Callable[[], None]], Any]) -> Any:
        try:
            return action(self._pause)
        finally:
            self._arrived.set()

    def _pause(self) -> None:
        self._arrived.set()
        if not self._go_on.wait(60):
            raise AssertionError(f"{self._session.name} was never told to go on")

    def let_go(self) -> None:
        self._go_on.set()

    def finish(self) -> Any:
        """Lets it go on; what it returns or raises."""
        self.let_go()
        return self._ended.result(timeout=30)


def transaction_open(session: Session, action: Callable[[], Any]) -> Paused:
    """`action` done in a transaction that commits at `finish()`."""

    def body(pause: Callable[[], None]) -> Any:
        with transaction.atomic(using=QUEUE):
            value = action()
            pause()
            return value

    return Paused(session, body)


def can_lock(pk: int) -> bool:
    """Whether nobody holds the row."""
    with transaction.atomic(using=QUEUE):
        return Job.objects.select_for_update(skip_locked=True).filter(pk=pk).exists()


@contextmanager
def sessions(*names: str) -> Iterator[list[Session]]:
    opened: list[Session] = []
    try:
        for name in names:
            opened.append(Session(name))
        yield opened
    finally:
        for paused in [paused for session in opened for paused in session.paused]:
            paused.let_go()
        for session in opened:
            session.close()


def blockers(pid: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_blocking_pids(%s)", [pid])
        [[pids]] = cursor.fetchall()
        return list(pids)


def _backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [[pid]] = cursor.fetchall()
        return int(pid)
