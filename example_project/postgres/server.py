"""One PostgreSQL server: initialised, started, watched, stopped and removed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlencode

from example_project.postgres.account import PORT, Account, private_folder
from example_project.postgres.binaries import PostgresUnavailable, find_binaries

StopMode = Literal["smart", "fast", "immediate"]

SUPERUSER = "postgres"
START_SECONDS = 60.0
STOP_SECONDS = 30.0
SHUTDOWN_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

# Ends the server and removes its folder when stdin closes, which is what happens to a pipe when its only
# writer dies, however it dies. SIGQUIT, because nobody needs the data of a folder that is removed next.
WATCHER = """
trap '' HUP INT TERM
read -r _
pid_file=$1/data/postmaster.pid
if pid=$(head -n 1 "$pid_file" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null; then
    rounds=0
    while [ -e "$pid_file" ] && [ "$rounds" -lt 100 ]; do sleep 0.1; rounds=$((rounds + 1)); done
fi
rm -rf "$1"
"""


class EmbeddedPostgres:
    """A PostgreSQL server with its data in a new temporary folder. Use it as a context manager.

    `durable=False` trades crash safety for speed (tests). `settings` are further server parameters.
    The server and its folder go when the context ends and also when this process dies, even by SIGKILL.
    """

    def __init__(
        self,
        *,
        durable: bool = True,
        binaries: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.binaries = binaries or find_binaries()
        self.settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **({} if durable else NOT_DURABLE),
            **(settings or {}),
        }
        self._account = Account()
        self._folder: Path | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder = private_folder(self._account)
        try:
            self._watcher = subprocess.Popen(
                ["/bin/sh", "-c", WATCHER, "sh", str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """Holds the data, the socket and the log."""
        if self._folder is None:
            raise RuntimeError("This server was not started. Use `with EmbeddedPostgres() as server:`.")
        return self._folder

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int | None:
        """Process id of the postmaster, None while it is stopped."""
        return self._server.pid if self._server is not None else None

    @property
    def url(self) -> str:
        return self.database_url("postgres")

    def database_url(self, name: str) -> str:
        # The port is named although it is the default: a PGPORT of the client's environment would win else.
        query = urlencode({"host": str(self.folder), "port": PORT, "user": SUPERUSER}, safe="/")
        return f"postgres:///{name}?{query}"

    def create_database(self, name: str) -> str:
        """Creates an empty database and returns its URL."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.database_url(name)

    def start(self) -> None:
        """Starts the server and waits until it takes connections. Does nothing when it runs."""
        if self._server is not None:
            return
        options = {"unix_socket_directories": str(self.folder), **self.settings}
        command = [str(self.binaries / "postgres"), "-D", str(self.data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with self._log_path.open("ab") as log:
            # A session of its own: Ctrl-C at the terminal is for us, who stop the server after its clients.
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,
                **self._account.popen_arguments,
            )
        self._wait_until_ready(self._server)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stops the server; the data stays for `start()`. Modes as in pg_ctl: `immediate` is a crash."""
        server = self._server
        if server is None:
            return
        server.send_signal(SHUTDOWN_SIGNALS[mode])
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.send_signal(signal.SIGQUIT)
            server.wait(STOP_SECONDS)
        self._server = None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stops the server and removes its folder."""
        try:
            self.stop("fast")
        finally:
            if self._watcher is not None and self._watcher.stdin is not None:
                self._watcher.stdin.close()
                self._watcher.wait(STOP_SECONDS)
                self._watcher = None
            self._folder = None

    def log(self) -> str:
        """What the server wrote to its log so far."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    @property
    def _log_path(self) -> Path:
        return self.folder / "postgres.log"

    def _environment(self) -> dict[str, str]:
        # PG* variables are the caller's client settings; the server programs would obey them too.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return {**inherited, "TZ": "UTC", "LC_ALL": "C"}

    def _run(self, program: str, *arguments: str) -> str:
        finished: subprocess.CompletedProcess[str] = subprocess.run(
            [str(self.binaries / program), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            cwd=self.folder,
            env=self._environment(),
            check=False,
            **self._account.popen_arguments,
        )
        if finished.returncode != 0:
            raise PostgresUnavailable(
                f"{program} from {self.binaries} ended with {finished.returncode}: "
                f"{(finished.stderr or finished.stdout).strip()[-2000:]}"
            )
        return finished.stdout

    def _initialise(self) -> None:
        try:
            version_text = self._run("postgres", "--version")
        except (PermissionError, PostgresUnavailable):
            if self._account.ids is None:
                raise
            self.binaries = self._reachable_copy()
            version_text = self._run("postgres", "--version")
        number = re.search(r"(\d+)", version_text)
        if number is None:
            raise PostgresUnavailable(
                f"{self.binaries / 'postgres'} --version printed {version_text!r}, no number."
            )
        self._run("initdb", "-D", str(self.data), *self._initdb_arguments(int(number.group())))

    def _reachable_copy(self) -> Path:
        """The programs lie where the server's account cannot go, such as a virtual environment below /root.

        Copied with the layout of the wheel, whose programs find their libraries beside the package.
        """
        installation, package = self.binaries.parent, self.binaries.parent.parent
        libraries = package.with_name(f"{package.name}.libs")
        target = self.folder / "programs"
        copy = target / package.name / installation.name
        shutil.copytree(installation, copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
        if libraries.is_dir():
            shutil.copytree(libraries, target / libraries.name)
        return copy / self.binaries.name

    def _initdb_arguments(self, version: int) -> list[str]:
        common = ["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"]
        if version >= 17:  # UTF-8 rules of PostgreSQL itself: no locale of the operating system is needed
            return [*common, "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        return [*common, "--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"]

    def _wait_until_ready(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._says_ready(server.pid):
            if server.poll() is not None or time.monotonic() > deadline:
                server.kill()
                server.wait()
                self._server = None
                raise PostgresUnavailable(
                    f"PostgreSQL from {self.binaries} did not start. The end of its log:\n"
                    f"{self.log()[-2000:]}"
                )
            time.sleep(0.02)

    def _says_ready(self, pid: int) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # The first line tells our server from one that crashed and left its file behind.
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"
