"""What is known of a queue that takes part: what to install, what was set and why, and how to read its tables."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Clock = Literal["database", "worker", "observed"]
"""Who stamped the times of a rate: the server, the worker process, or the looks of the benchmark."""

CLOCKS: dict[Clock, str] = {
    "database": "first claim to last completion, by the database's clock",
    "worker": "first claim to last completion, by the clock of the worker process on the same host",
    "observed": "first to last completion seen by a look every 20 ms, since the queue keeps no times",
}


@dataclass(frozen=True)
class Entrant:
    """One queue, or one way to run it.

    Each query sees only this entrant's database. ``unfinished`` selects a boolean, ``succeeded`` a number;
    ``span`` selects the seconds from the first claim to the last completion, or is empty when no times are kept.
    The queries that begin with ``steps_`` say the same of workflow executions.
    """

    name: str
    settings: tuple[str, ...]
    """What was chosen, each with the place that recommends it."""
    packages: tuple[str, ...] = ()
    """Given to pip as they stand. None: it runs in the environment of this process."""
    program: str = ""
    """Module under ``programs``; by default the one of the same name."""
    variant: str = ""
    """Told to the program, where one program serves two entrants."""
    python: tuple[int, int] = (3, 11)
    """Oldest Python that its packages install on."""
    unfinished: str = ""
    succeeded: str = ""
    span: str = ""
    clock: Clock = "database"
    steps_unfinished: str = ""
    steps_recorded: str = ""
    steps_span: str = ""
    steps_clock: Clock = "database"
    picks_up: bool = True
    """Whether a lone job is picked up by an idle worker at all; a bare loop has no notification to show."""

    @property
    def environment(self) -> str:
        """Name of the virtual environment, shared by the entrants of one program."""
        return self.module

    @property
    def module(self) -> str:
        return self.program or self.name.replace("-", "_")

    @property
    def has_jobs(self) -> bool:
        return bool(self.unfinished)

    @property
    def has_steps(self) -> bool:
        return bool(self.steps_unfinished)

    @cached_property
    def distributions(self) -> tuple[str, ...]:
        """Names without versions, extras and markers."""
        cut = str.maketrans("[;<>=!~ ", "|" * 8)
        return tuple(package.translate(cut).partition("|")[0] for package in self.packages)
