"""Worker processes to be measured: started, waited for, stopped one by one, and gone with their parent."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from example_project.demo.crew import MANAGE, ChildFailed, Crew

READY = re.compile(r"^pgjobs: worker (\S+) ready \(pid (\d+)\)", re.MULTILINE)
START_SECONDS = 60.0
LOOK_SECONDS = 0.02
WHOLE_LOG = 10_000_000  # characters


class Fleet(Crew):
    """Runs ``manage.py runworkers`` and plain Python modules."""

    def start_workers(
        self, name: str, queue: str, *, processes: int, concurrency: int, **options: object
    ) -> None:
        """Start ``runworkers`` and return when every process has said that it is ready. Raises ChildFailed."""
        given = {
            "queues": queue,
            "processes": processes,
            "concurrency": concurrency,
            "grace_seconds": 1,
            **options,
        }
        arguments = []
        for option, value in given.items():
            flag = f"--{option.replace('_', '-')}"
            arguments += [flag] if value is True else [flag, str(value)]
        self.start(name, "runworkers", *arguments)
        deadline = time.monotonic() + START_SECONDS
        while len(self.workers(name)) < processes:
            self.check()
            if time.monotonic() > deadline:
                raise ChildFailed(f"`{name}` was not ready in {START_SECONDS:g} s:\n{self.log_tail(name)}")
            time.sleep(LOOK_SECONDS)

    def workers(self, name: str) -> list[tuple[str, int]]:
        """Name and process id of each worker that was ever ready under ``name``."""
        return [(worker, int(pid)) for worker, pid in READY.findall(self.log_tail(name, WHOLE_LOG))]

    def pid(self, name: str) -> int:
        """Of the supervising parent."""
        return self._children[name].pid

    def start_module(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Run ``python -m module`` with pipes for standard input and output; it should end with its input."""
        with self._log(name).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd=MANAGE.parent,
            )
        self._children[name] = child
        self._tell_watcher(str(child.pid))
        return child

    def start_command(self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        """Run any command as the leader of a session of its own; its output goes to a log."""
        with self._log(name).open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env=env,
            )
        self._children[name] = child
        self._tell_watcher(str(child.pid))

    def kill(self, name: str) -> None:
        """SIGKILL to a child and to all that it started in its process group; nothing when it was never started."""
        child = self._children.pop(name, None)
        if child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def end(self, name: str) -> None:
        """SIGTERM, and wait until it is gone."""
        child = self._children.pop(name)
        child.terminate()
        try:
            child.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def lose_host(self, name: str) -> None:
        """End supervisor and workers as if their machine had gone: nobody is left to hand anything back."""
        parent = self._children.pop(name)
        parent.send_signal(signal.SIGSTOP)  # so that it cannot answer its child's death
        for _, pid in self.workers(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.kill()
        parent.wait()


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables for the processes started inside."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
