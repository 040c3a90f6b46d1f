"""Commands that measure on a database: one of their own on the suite's server, and a process to watch."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.support.waiting import wait_until
from tests.support.workers import MARK, ROOT, processes_marked

# Reachable by nobody: if a command used the database of the settings, it would end in an error.
NOWHERE = "postgres://nobody@127.0.0.1:1/nowhere"


@contextmanager
def new_database(server_url: str, prefix: str) -> Iterator[str]:
    """The URL of an empty database on the suite's server, dropped at the end."""
    name = f"{prefix}_{uuid.uuid4().hex[:8]}"
    identifier = sql.Identifier(name)
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        try:
            parts = urlsplit(server_url)
            yield f"{parts.scheme}://{parts.netloc}/{name}?{parts.query}"
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))


def schemas(url: str) -> set[str]:
    """What a command left in the database: every schema but those that a new database has."""
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        ).fetchall()
    return {name for (name,) in names} - {"public"}


class Measuring:
    """A running ``manage.py`` command, its output in a file and all of its processes marked."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark = uuid.uuid4().hex
        self._log = folder / f"{arguments[0]}-{self.mark}.log"
        environment = {
            **os.environ,
            "DATABASE_URL": NOWHERE,
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            MARK: self.mark,
        }
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self, seconds: float = 120) -> int:
        """The exit code. Raises when it does not end in time."""
        return self.process.wait(seconds)

    def wait_for(self, text: str, seconds: float = 60) -> None:
        def found() -> bool:
            assert self.process.poll() is None or text in self.output(), self.output()
            return text in self.output()

        wait_until(found, seconds, lambda: f"{text!r} in:\n{self.output()}")

    def processes(self) -> set[int]:
        return processes_marked(self.mark)

    def assert_no_process_left(self) -> None:
        wait_until(lambda: not self.processes(), 20, lambda: f"the end of {self.processes()}")

    def kill(self) -> None:
        """Leaves nothing behind, whatever the test did."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
