"""The bounded room for running rows: threads for plain functions, one event loop for coroutine functions."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence

from pgjobs.worker import clock
from pgjobs.worker.dispatch import Dispatch
from pgjobs.worker.holdings import Holding

logger = logging.getLogger("pgjobs.worker")


class Slots:
    """``size`` rows at a time, of either kind; more may wait here for a slot. Threads are born when first needed."""

    def __init__(self, size: int, dispatch: Dispatch, on_free: Callable[[], None]) -> None:
        self.size = size
        self._dispatch = dispatch
        self._on_free = on_free
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[Holding] = deque()
        self._running: set[Holding] = set()
        self._stuck: set[Holding] = set()
        self._moved_at = clock.now()
        """When a row last began, or came to wait."""
        self._inbox: queue.SimpleQueue[Holding | None] = queue.SimpleQueue()
        self._free_threads = 0
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_hand(self) -> int:
        """Rows that run or wait for a slot."""
        return len(self._running) + len(self._stuck) + len(self._waiting)

    @property
    def busy(self) -> int:
        """Rows that run."""
        return len(self._running) + len(self._stuck)

    @property
    def stuck(self) -> int:
        """Rows that were given up and have not come back."""
        return len(self._stuck)

    def run(self, holdings: Sequence[Holding]) -> None:
        """Take rows in: each begins as soon as a slot is free, in this order."""
        with self._lock:
            if holdings:
                self._waiting.extend(holdings)
                self._moved_at = clock.now()
            self._begin_waiting()

    def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing runs that was not given up; False when something still does."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, timeout)

    def give_up(self, holding: Holding) -> None:
        """Expect no end of a row whose code does not come back. Its slot stays taken."""
        with self._idle:
            if holding in self._running:
                self._running.remove(holding)
                self._stuck.add(holding)
                self._idle.notify_all()

    def running(self) -> list[Holding]:
        """A copy to walk over."""
        with self._lock:
            return list(self._running)

    def stalled(self, seconds: float) -> bool:
        """Whether rows wait here while nothing has begun for so long: others may have free slots."""
        return bool(self._waiting) and clock.now() - self._moved_at > seconds

    def take_waiting(self) -> list[Holding]:
        """Take back what has not begun."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def close(self) -> None:
        """Let idle threads end."""
        for _ in self._threads:
            self._inbox.put(None)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _begin_waiting(self) -> None:
        """Begin what fits. The lock is held."""
        while self._waiting and len(self._running) + len(self._stuck) < self.size:
            holding = self._next()
            if self._dispatch.is_async(holding):
                loop = self._loop or self._start_loop()
                loop.call_soon_threadsafe(self._spawn, holding)
            elif self._free_threads:
                self._free_threads -= 1
                self._inbox.put(holding)
            elif not self._start_thread(holding):
                self._running.discard(holding)
                self._waiting.appendleft(holding)
                return

    def _next(self) -> Holding:
        self._moved_at = clock.now()
        holding = self._waiting.popleft()
        self._running.add(holding)
        return holding

    def _start_thread(self, first: Holding) -> bool:
        """False when the machine has no thread to give; the row then waits for one that is there already."""
        name = f"pgjobs-slot-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, args=(first,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            logger.warning("no thread for another slot: %s", error)
            return False
        self._threads.append(thread)
        return True

    def _work(self, first: Holding) -> None:
        holding: Holding | None = first
        while holding is not None:
            try:
                contextvars.copy_context().run(self._dispatch.run, holding)
            except BaseException:
                # The end of a row is written by what runs it; a slot outlives whatever went wrong there.
                logger.exception("%s=%s broke its slot's run", *holding.place)
            holding = self._done(holding, in_thread=True)
            self._on_free()
            if holding is None:
                holding = self._inbox.get()

    def _done(self, holding: Holding, *, in_thread: bool) -> Holding | None:
        """A slot is free. The thread that freed it goes on with the next row itself, without a hop."""
        with self._idle:
            self._running.discard(holding)
            self._stuck.discard(holding)
            if in_thread:
                if self._waiting and not self._dispatch.is_async(self._waiting[0]):
                    return self._next()
                self._free_threads += 1
            self._begin_waiting()
            if not self._running:
                self._idle.notify_all()
        return None

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="pgjobs-loop", daemon=True).start()
        return loop

    def _spawn(self, holding: Holding) -> None:
        task = asyncio.ensure_future(self._dispatch.run_async(holding))
        self._tasks.add(task)  # the loop keeps only weak references
        task.add_done_callback(lambda task: self._ended(task, holding))

    def _ended(self, task: asyncio.Task[None], holding: Holding) -> None:
        self._tasks.discard(task)
        self._done(holding, in_thread=False)
        self._on_free()
