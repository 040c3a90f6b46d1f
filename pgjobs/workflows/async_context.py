"""The same context for ``async def`` workflows: the same names, to be awaited.

The body runs on an event loop in its slot's thread; durable calls run the one synchronous engine in a second
thread, which belongs to this turn alone, and coroutine steps come back to the loop from there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pgjobs.connections import release_handler_connections
from pgjobs.exceptions import DurableCallRefused
from pgjobs.workflows.context import WorkflowContext
from pgjobs.workflows.durable import Durable
from pgjobs.workflows.replay import Replay

_SLICE = 0.1  # seconds after which a thread that waits for the loop looks up

_DURABLE = frozenset(
    {
        "step",
        "sleep",
        "sleep_until",
        "wait_signal",
        "approval",
        "gather",
        "map",
        "job",
        "child",
        "changed",
        "continue_as_new",
    }
)


class AsyncWorkflowContext:
    """Durable calls are awaited, one at a time; other attributes are those of :class:`WorkflowContext`."""

    def __init__(self, context: WorkflowContext, engine: ThreadPoolExecutor) -> None:
        self._context = context
        self._engine = engine
        self._busy = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._context, name)
        return functools.partial(self._call, name) if name in _DURABLE else found

    async def atomic(
        self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Durable: call a synchronous ``function`` in a transaction that commits with its checkpoint."""
        if function is None or inspect.iscoroutinefunction(function):
            raise DurableCallRefused(
                f"ctx.atomic({name!r})",
                "Django's transactions are synchronous, so in an async workflow it needs a plain function",
                "Write await ctx.atomic(name, function, ...).",
            )
        return await self._call("atomic", name, function, *args, **kwargs)

    async def _call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        if self._busy:
            raise DurableCallRefused(
                f"ctx.{method}",
                "another durable call is under way, so their order would be chance",
                "Await one at a time; run work in parallel with ctx.gather.",
            )
        loop = asyncio.get_running_loop()
        if method == "step" and args and inspect.iscoroutinefunction(args[0]):
            args = (_on_loop(args[0], loop, self._context._replay.durable), *args[1:])
        self._busy = True
        try:
            call = functools.partial(getattr(self._context, method), *args, **kwargs)
            return await loop.run_in_executor(self._engine, call)
        finally:
            self._busy = False


def _on_loop(
    function: Callable[..., Any], loop: asyncio.AbstractEventLoop, durable: Durable
) -> Callable[..., Any]:
    """A coroutine function as the engine's thread can call it. Cancelled when the lease is lost."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), loop)
        try:
            # In slices: a timeout is an exception raised in this thread, which a blocked thread does not see.
            while not loop.is_closed():
                done, _ = concurrent.futures.wait([future], _SLICE)
                if done:
                    return future.result()
                if durable.should_stop:
                    durable.check()
            raise RuntimeError("the body has ended without awaiting this step")
        finally:
            future.cancel()

    return call


def run_body(function: Callable[..., Any], replay: Replay, arguments: dict[str, Any]) -> Any:
    """Call a workflow's body, of either kind, to its end."""
    if not inspect.iscoroutinefunction(function):
        return function(WorkflowContext(replay), **arguments)
    with ThreadPoolExecutor(1, "pgjobs-engine", initializer=replay.adopt_thread) as engine:
        try:
            with asyncio.Runner() as runner:
                context = AsyncWorkflowContext(WorkflowContext(replay), engine)
                return runner.run(function(context, **arguments))
        finally:
            engine.submit(release_handler_connections)
