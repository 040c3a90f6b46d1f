"""The system's Chromium, driven by Playwright in a thread of its own.

Playwright's blocking interface runs an event loop in its thread, and Django refuses the ORM where one runs. So every
call on a page goes to that thread and its answer comes back here; tests read like any other Playwright test.
"""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
ANSWER_SECONDS = 90
EXPECT_SECONDS = 20  # two busy processors are slow; what is right comes at once


def program() -> str | None:
    """The path of the browser; None when there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Chromium:
    """One browser process. :meth:`call` runs a function in its thread and returns what it returned."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._ready: Future[Any] = Future()
        self._thread = threading.Thread(target=self._serve, name="chromium", daemon=True)
        self._thread.start()
        self.browser = Remote(self, self._ready.result(ANSWER_SECONDS))

    def call(self, act: Callable[[], Any]) -> Any:
        """What ``act`` returns or raises in the browser's thread."""
        if threading.current_thread() is self._thread:  # a handler of an event
            return act()
        answer: Future[Any] = Future()
        self._calls.put((act, answer))
        return answer.result(ANSWER_SECONDS)

    def close(self) -> None:
        """Ends the browser and the thread."""
        self._calls.put(None)
        self._thread.join(ANSWER_SECONDS)

    def _serve(self) -> None:
        from playwright.sync_api import expect as ours
        from playwright.sync_api import sync_playwright

        ours.set_options(timeout=1000 * EXPECT_SECONDS)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=self._path, args=ARGUMENTS)
                self._ready.set_result(browser)
                while (item := self._calls.get()) is not None:
                    act, answer = item
                    try:
                        answer.set_result(act())
                    except BaseException as error:
                        answer.set_exception(error)
                browser.close()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)


class Remote:
    """An object of Playwright's, used from any thread."""

    def __init__(self, chromium: Chromium, target: Any) -> None:
        self._chromium = chromium
        self._target = target

    def __getattr__(self, name: str) -> Any:
        target, call = self._target, self._chromium.call
        value = call(lambda: getattr(target, name))
        if not callable(value):
            return self._wrapped(value)

        def method(*args: Any, **kwargs: Any) -> Any:
            given = [bare(each) for each in args]
            named = {key: bare(each) for key, each in kwargs.items()}
            return self._wrapped(call(lambda: value(*given, **named)))

        return method

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrapped(each) for each in value]
        return Remote(self._chromium, value) if type(value).__module__.startswith("playwright.") else value


def bare(value: Any) -> Any:
    """Playwright's own object, for an argument that is a :class:`Remote`."""
    return value._target if isinstance(value, Remote) else value


def expect(subject: Any, message: str | None = None) -> Any:
    """Playwright's ``expect`` on a :class:`Remote`: waits for what is asserted."""
    from playwright.sync_api import expect as ours

    chromium = subject._chromium
    return Remote(chromium, chromium.call(lambda: ours(bare(subject), message)))
