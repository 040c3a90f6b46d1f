"""From a row in hand to what runs it."""

from __future__ import annotations

from pgjobs.queue.attempts import ClaimedJob
from pgjobs.worker.executor import Executor
from pgjobs.worker.holdings import Holding
from pgjobs.worker.turns import Turns


class Dispatch:
    """Jobs go to the executor, executions take a turn."""

    def __init__(self, executor: Executor, turns: Turns) -> None:
        self._executor = executor
        self._turns = turns

    def is_async(self, holding: Holding) -> bool:
        """Whether it runs on the shared event loop. Workflows have their own."""
        return isinstance(holding.claimed, ClaimedJob) and self._executor.is_async(holding)

    def run(self, holding: Holding) -> None:
        """In a slot's thread, to its end."""
        if isinstance(holding.claimed, ClaimedJob):
            self._executor.run(holding)
        else:
            self._turns.run(holding)

    async def run_async(self, holding: Holding) -> None:
        """On the event loop, to its end."""
        await self._executor.run_async(holding)
