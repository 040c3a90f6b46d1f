"""Worker processes under test: started through the real command, observed from outside, never left behind."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
READY = re.compile(r"^pgjobs: worker (?P<name>\S+) ready \(pid (?P<pid>\d+)\)", re.MULTILINE)
MARK = "PGJOBS_TEST_FAMILY"
START_SECONDS = 60.0
# A short clock: a lease lapses in 3 s, so that a crash story fits into a test.
SHORT_CLOCK = ("--lease-seconds", "3", "--heartbeat-seconds", "0.5", "--poll-seconds", "0.2")


def alive(pid: int) -> bool:
    """Whether the process runs or is stopped. A zombie is dead: only its parent has not noticed."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def processes_marked(mark: str) -> set[int]:
    """Every live process whose environment carries the mark, whatever its parent or process group became."""
    needle = f"{MARK}={mark}".encode()
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (folder / "environ").read_bytes().split(b"\0") and alive(int(folder.name)):
                found.add(int(folder.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


class Workers:
    """One `manage.py runworkers` and all that it started."""

    def __init__(self, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self._mark = uuid.uuid4().hex
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**env, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The supervising parent."""
        return self.process.pid

    @property
    def ready(self) -> list[tuple[str, int]]:
        """Name and process id of every worker that ever said it was ready, in order, dead ones included."""
        return [(match["name"], int(match["pid"])) for match in READY.finditer(self.output())]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.ready]

    @property
    def child_pids(self) -> list[int]:
        """The workers that are alive now, the parent left out."""
        return [pid for _, pid in self.ready if pid != self.pid and alive(pid)]

    def family(self) -> set[int]:
        """Every live process of this command: parent, workers, and what they started."""
        return processes_marked(self._mark)

    def wait_ready(self, count: int, timeout: float = START_SECONDS) -> None:
        """Waits until `count` workers in all have said that they are ready."""

        def said_so() -> bool:
            if len(self.ready) < count and self.process.poll() is not None:
                raise AssertionError(
                    f"runworkers ended with {self.process.returncode} before {count} workers were ready:\n"
                    f"{self.output()}"
                )
            return len(self.ready) >= count

        wait_until(said_so, timeout, lambda: f"{count} ready workers. Output so far:\n{self.output()}")

    def signal(self, number: signal.Signals, pid: int | None = None) -> None:
        """Sends a signal to the parent, or to the given worker."""
        os.kill(self.pid if pid is None else pid, number)

    def wait(self, timeout: float = 30.0) -> int:
        """The exit code, once the command has ended."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"runworkers still ran after {timeout:g} s. Output:\n{self.output()}"
            ) from None

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Ends the whole family by SIGKILL, the parent first so that it starts no new worker."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

        def gone() -> bool:
            left = self.family()
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return not left

        wait_until(gone, 20, lambda: f"the end of {self.family()}")


class Spawner:
    """Starts workers and ends all of them. Calling it: `spawn("--processes", "2", env={"NAME": "value"})`."""

    def __init__(self, environment: Callable[[], Mapping[str, str]], folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self.started: list[Workers] = []

    def __call__(
        self,
        *options: str,
        processes: int = 1,
        concurrency: int | None = None,
        queues: str | None = None,
        clock: tuple[str, ...] = SHORT_CLOCK,
        env: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> Workers:
        """Starts `runworkers` and returns once all its workers are ready (`wait=False`: at once).

        `options` come last, so they win over the short clock.
        """
        command = [sys.executable, "manage.py", "runworkers", "--processes", str(processes), *clock]
        if concurrency is not None:
            command += ["--concurrency", str(concurrency)]
        if queues is not None:
            command += ["--queues", queues]
        return self.start([*command, *options], ready=processes if wait else 0, env=env)

    def start(self, command: list[str], ready: int = 0, env: Mapping[str, str] | None = None) -> Workers:
        """Starts any command in the workers' environment, for instance another manage.py command."""
        log = self._folder / f"workers-{len(self.started)}.log"
        workers = Workers(command, {**self._environment(), **(env or {})}, log)
        self.started.append(workers)
        if ready:
            workers.wait_ready(ready)
        return workers

    def kill_all(self) -> None:
        """Leaves nothing behind."""
        for workers in self.started:
            workers.kill()
