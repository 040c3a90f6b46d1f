"""Starting a worker process and knowing how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace

from pgjobs.worker import clock, registration
from pgjobs.worker.ledger import begun, create, signed_off, silent_for, worked
from pgjobs.worker.options import WorkerOptions


@dataclass(slots=True, eq=False)
class Child:
    """One worker process as its supervisor sees it."""

    options: WorkerOptions
    slot: str
    process: subprocess.Popen[bytes]
    lifeline: int
    """Write end of the pipe whose closing tells the child that its supervisor is gone."""
    ledger: int
    """What the child has begun (:mod:`pgjobs.worker.ledger`)."""
    started_at: float = field(default_factory=clock.now)
    killed: bool = False
    """By its supervisor, because it did not end in time."""
    stops_told: int = 0
    silent_since: float | None = None
    """When its supervisor first found it silent for too long."""

    @property
    def name(self) -> str:
        """What its leases carry as owner."""
        return self.options.name

    def has_ended(self) -> bool:
        """Whether the process is gone; collects it."""
        return self.process.poll() is not None

    @property
    def ended_in_order(self) -> bool:
        """Whether its rows are to be handed back unspent: it signed off, or it was killed on purpose."""
        return signed_off(self.ledger) or (self.killed and self.process.returncode == -signal.SIGKILL)

    @property
    def died_of(self) -> str:
        """How it died, for people; empty when it ended in order."""
        code = self.process.returncode
        if self.ended_in_order or code is None:
            return ""
        return f"killed by {_signal(-code)}" if code < 0 else f"left with exit code {code}, without a word"

    def send(self, number: int) -> None:
        """Send a signal; a process that is gone does not mind."""
        if self.process.returncode is None:
            self.process.send_signal(number)

    def stop(self, requests: int) -> None:
        """Pass on as many requests to stop as there were so far: the first lets it finish, the second does not.

        The second is SIGQUIT: SIGTERM may come twice for one request, when the whole group is signalled.
        """
        for number in (signal.SIGTERM, signal.SIGQUIT)[self.stops_told : requests]:
            self.send(number)
            self.stops_told += 1

    def begun(self) -> dict[str, list[int]] | None:
        """Ids of rows whose code may have run when it ended, by table; None when all must be taken for such."""
        return begun(self.ledger)

    @property
    def has_begun(self) -> bool:
        """Whether it works on something now."""
        rows = self.begun()
        return rows is None or any(rows.values())

    @property
    def silent_for(self) -> float | None:
        """Seconds for which none of its threads has run; None while it starts."""
        return silent_for(self.ledger)

    @property
    def has_worked(self) -> bool:
        """Whether it has ever begun anything."""
        return worked(self.ledger)

    def close(self) -> None:
        """Let go of pipe and ledger."""
        os.close(self.lifeline)
        os.close(self.ledger)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def start(options: WorkerOptions, slot: str, news: int) -> Child:
    """A fresh interpreter, in a process group of its own so that Ctrl-C reaches only the supervisor.

    ``news`` is where the child writes what its supervisor should know at once.
    """
    options = replace(options, name=registration.new_name(slot))
    ledger = create()
    try:
        reading, writing = os.pipe()
    except BaseException:
        os.close(ledger)
        raise
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pgjobs.worker.child",
                options.to_json(),
                *map(str, (reading, ledger, news)),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path) or "."},
            pass_fds=(reading, ledger, news),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
    except BaseException:
        os.close(writing)
        os.close(ledger)
        raise
    finally:
        os.close(reading)
    return Child(options, slot, process, writing, ledger)
