"""The bounded room for running jobs: threads for plain functions, one event loop for coroutine functions."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable

from pgjobs.worker.dispatch import Dispatch
from pgjobs.worker.holdings import Holding


class Slots:
    """``size`` jobs at a time, of either kind. Threads are born when they are first needed."""

    def __init__(self, size: int, dispatch: Dispatch, on_free: Callable[[], None]) -> None:
        self.size = size
        self._dispatch = dispatch
        self._on_free = on_free
        self._inbox: queue.SimpleQueue[Holding | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._running = 0
        self._waiting_threads = 0
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def free(self) -> int:
        """How many more jobs may be claimed now."""
        return self.size - self._running

    def run(self, holding: Holding) -> None:
        """Begin one job. The caller has seen that a slot is free."""
        with self._lock:
            self._running += 1
        if self._dispatch.is_async(holding):
            loop = self._loop or self._start_loop()
            loop.call_soon_threadsafe(self._spawn, holding)
            return
        with self._lock:
            short = self._inbox.qsize() >= self._waiting_threads and len(self._threads) < self.size
            if short:
                self._start_thread()
        self._inbox.put(holding)

    def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing runs; False when something still does."""
        with self._idle:
            return self._idle.wait_for(lambda: self._running == 0, timeout)

    def replace_thread(self) -> None:
        """Give up a slot whose handler does not come back: the room shrinks by one."""
        with self._lock:
            self.size = max(self.size - 1, 0)

    def close(self) -> None:
        """Let idle threads end."""
        for _ in self._threads:
            self._inbox.put(None)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"pgjobs-slot-{len(self._threads) + 1}", daemon=True
        )
        self._threads.append(thread)
        self._waiting_threads += 1
        thread.start()

    def _work(self) -> None:
        while (holding := self._inbox.get()) is not None:
            with self._lock:
                self._waiting_threads -= 1
            try:
                self._dispatch.run(holding)
            finally:
                with self._lock:
                    self._waiting_threads += 1
                self._done()

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="pgjobs-loop", daemon=True).start()
        self._tasks: set[asyncio.Task[None]] = set()
        return loop

    def _spawn(self, holding: Holding) -> None:
        task = asyncio.ensure_future(self._dispatch.run_async(holding))
        self._tasks.add(task)  # the loop keeps only weak references
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._done())

    def _done(self) -> None:
        with self._idle:
            self._running -= 1
            if self._running == 0:
                self._idle.notify_all()
        self._on_free()
