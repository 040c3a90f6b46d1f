"""Starting a worker process and knowing how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace

from pgjobs.worker import clock, registration
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.process import EXIT_RECYCLE


@dataclass(slots=True, eq=False)
class Child:
    """One worker process as its supervisor sees it."""

    options: WorkerOptions
    slot: str
    process: subprocess.Popen[bytes]
    lifeline: int
    """Write end of the pipe whose closing tells the child that its supervisor is gone."""
    started_at: float = field(default_factory=clock.now)
    told_to_stop: bool = False

    @property
    def name(self) -> str:
        """What its leases carry as owner."""
        return self.options.name

    def has_ended(self) -> bool:
        """Whether the process is gone; collects it."""
        return self.process.poll() is not None

    @property
    def ended_in_order(self) -> bool:
        """Whether its rows are to be handed back unspent: it left by itself, or it was stopped on purpose."""
        code = self.process.returncode
        return code in (0, EXIT_RECYCLE) or (self.told_to_stop and code == -signal.SIGKILL)

    def send(self, number: int) -> None:
        """Send a signal; a process that is gone does not mind."""
        if self.process.returncode is None:
            self.process.send_signal(number)

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self.lifeline)


def start(options: WorkerOptions, slot: str) -> Child:
    """A fresh interpreter, in a process group of its own so that Ctrl-C reaches only the supervisor."""
    options = replace(options, name=registration.new_name(slot))
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "pgjobs.worker.child", options.to_json(), str(reading)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path) or "."},
            pass_fds=(reading,),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    return Child(options, slot, process, writing)
