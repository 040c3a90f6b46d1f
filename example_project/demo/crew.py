"""The demo's child processes and temporary folder: all gone when the demo is, however it ends."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

MANAGE = Path(__file__).resolve().parent.parent.parent / "manage.py"
STOP_SECONDS = 10.0

# Reads one process id a line. Its stdin ends when the demo is gone, even by SIGKILL, and then it ends those
# processes and removes the folder. "forget" means that the demo has done so itself. Workers whose database went
# with the demo take long to end by themselves; each child leads a session, so SIGKILL can go to all of it.
# Without /proc it goes to the child alone, whose workers follow when they notice.
WATCHER = """
trap '' HUP INT TERM
pids=
while read -r line; do
    if [ "$line" = forget ]; then exit 0; fi
    pids="$pids $line"
done
sessions() {
    for stat in /proc/[0-9]*/stat; do
        { read -r line < "$stat"; } 2>/dev/null || continue
        member=${line%% *}
        set -- ${line##*) }
        case "$pids " in *" $4 "*) if [ "$1" != Z ]; then echo "$member"; fi ;; esac
    done
}
kill -s TERM $pids 2>/dev/null
rounds=0
while [ "$rounds" -lt 20 ] && [ -n "$(sessions)" ]; do
    sleep 0.1
    rounds=$((rounds + 1))
done
kill -s KILL $pids $(sessions) 2>/dev/null
rm -rf "$1"
"""


class DemoError(RuntimeError):
    """The demo cannot go on; the text says why and what to do."""


class ChildFailed(DemoError):
    """A child process ended although it should run; the text holds the end of its log."""


class Crew:
    """Starts commands of ``manage.py`` and ends them. Use as a context manager."""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="pgjobs-demo-"))
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", WATCHER, "sh", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._tell_watcher("forget")
        if self._watcher.stdin is not None:
            self._watcher.stdin.close()
        self._watcher.wait()

    def start(self, name: str, *arguments: str) -> None:
        """Run ``manage.py <arguments>`` with the environment of this process; output goes to a log file."""
        with self._log(name).open("ab") as log:
            # A session of its own: Ctrl-C at the terminal is for the demo, which then stops things in order.
            child = subprocess.Popen(
                [sys.executable, str(MANAGE), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._children[name] = child
        self._tell_watcher(str(child.pid))

    def check(self) -> None:
        """Raise :class:`ChildFailed` when one has ended by itself."""
        for name, child in self._children.items():
            if child.poll() is not None:
                log = self.log_tail(name)
                raise ChildFailed(
                    f"`{name}` ended with exit code {child.returncode}. The end of its log:\n{log}"
                )

    def lose(self, name: str, workers: Iterable[int]) -> None:
        """SIGKILL to one command and its ``workers``, as when a machine goes: nobody gives back what they held."""
        child = self._children.pop(name)
        child.send_signal(signal.SIGSTOP)  # a parent that sees its workers die would give back their rows
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        child.kill()
        child.wait()

    def log_tail(self, name: str, size: int = 3000) -> str:
        path = self._log(name)
        return path.read_text(errors="replace")[-size:].strip() if path.exists() else ""

    def stop(self) -> None:
        """SIGTERM to all, then wait; SIGKILL to those that do not follow."""
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children.clear()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _tell_watcher(self, line: str) -> None:
        if self._watcher.stdin is not None:
            self._watcher.stdin.write(f"{line}\n".encode())
            self._watcher.stdin.flush()
