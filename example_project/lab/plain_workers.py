"""The plain workers: started once, then given one order after another."""

import json
import os
import select
import subprocess
import time
from collections.abc import Callable

from example_project.benchmark.fleet import Fleet, environment
from example_project.demo.crew import ChildFailed, DemoError
from example_project.lab.waiting import APPLICATION

MODULE = "example_project.lab.worker"
LOOK_SECONDS = 0.02
START_SECONDS = 60.0
SLACK_SECONDS = 60.0


class PlainWorkers:
    """Processes of ``lab.worker``; as many as were ever asked for."""

    def __init__(self, fleet: Fleet, url: str) -> None:
        self._fleet = fleet
        self._url = url
        self._children: list[subprocess.Popen[bytes]] = []

    def run(
        self, strategy: str, workers: int, milliseconds: float, *, seconds: float, tick: Callable[[], None]
    ) -> None:
        """Let ``workers`` of them empty the table at the same time. ``seconds`` is what it should take."""
        children = self._started(workers)
        order = json.dumps({"strategy": strategy, "milliseconds": milliseconds}).encode() + b"\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write(order)
            child.stdin.flush()
        self._expect(children, f"end of {strategy}", 3 * seconds + SLACK_SECONDS, tick)

    def _started(self, count: int) -> list[subprocess.Popen[bytes]]:
        with environment(PGAPPNAME=APPLICATION):
            new = [
                self._fleet.start_module(f"plain-{number}", MODULE, self._url, f"w{number}")
                for number in range(len(self._children) + 1, count + 1)
            ]
        self._children += new
        self._expect(new, "start of the plain workers", START_SECONDS, lambda: None)
        return self._children[:count]

    def _expect(
        self, children: list[subprocess.Popen[bytes]], what: str, seconds: float, tick: Callable[[], None]
    ) -> None:
        """One line of output from each. Raises ChildFailed when one has ended, DemoError when time is up."""
        waiting = {child.stdout.fileno(): child for child in children if child.stdout is not None}
        deadline = time.monotonic() + seconds
        while waiting:
            for descriptor in select.select(list(waiting), [], [], LOOK_SECONDS)[0]:
                if not os.read(descriptor, 100):
                    waiting[descriptor].wait()
                    self._fleet.check()
                    raise ChildFailed(f"A plain worker ended before the {what}.")
                del waiting[descriptor]
            if time.monotonic() > deadline:
                raise DemoError(f"The {what} did not come within {seconds:.0f} s.")
            tick()
