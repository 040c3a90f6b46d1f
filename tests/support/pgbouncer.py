"""A PgBouncer of the test's own before the suite's server: transaction mode, three server connections."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psycopg

from example_project.postgres.account import Account, private_folder
from tests.support.waiting import wait_until

PORT = 6432  # only a part of the socket's name: nothing listens on the network
POOL_SIZE = 3


def program() -> str | None:
    """Debian keeps it where only root looks."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


class PgBouncer:
    """Listens on a unix socket in `folder`, and lets anybody in who is named like the server's user."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """`params` as a Django connection gives them to its driver."""
        found = program()
        assert found is not None, "ask program() first"
        self._program = found
        self._user = str(params.get("user") or "postgres")
        self._account = Account()
        self.folder = private_folder(self._account)
        self._process: subprocess.Popen[bytes] | None = None
        self._write("users.txt", f'"{self._user}" "{params.get("password") or ""}"\n')
        self._write(
            "pgbouncer.ini",
            f"""[databases]
* = host={params.get("host") or "localhost"} port={params.get("port") or 5432}
[pgbouncer]
listen_port = {PORT}
unix_socket_dir = {self.folder}
auth_type = trust
auth_file = {self.folder / "users.txt"}
admin_users = {self._user}
pool_mode = transaction
default_pool_size = {POOL_SIZE}
ignore_startup_parameters = extra_float_digits,options
""",
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Returns once it answers. It refuses to run as root, so it runs as who the test servers run as."""
        with (self.folder / "pgbouncer.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, str(self.folder / "pgbouncer.ini")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,
                **self._account.popen_arguments,
            )
        wait_until(self._answers, 20, lambda: f"PgBouncer. Its log:\n{self.log()}")

    def stop(self) -> None:
        """At once: clients and servers find their connections broken."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def command(self, text: str) -> None:
        """One of the admin console's, for instance RECONNECT."""
        place = {"host": str(self.folder), "port": PORT, "user": self._user, "dbname": "pgbouncer"}
        with psycopg.connect(**place, autocommit=True) as console:  # type: ignore[arg-type]
            console.execute(text)  # type: ignore[call-overload]

    def log(self) -> str:
        return (self.folder / "pgbouncer.log").read_text(errors="replace")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            self.command("SHOW VERSION")
        except psycopg.OperationalError:
            return False
        return True

    def _write(self, name: str, text: str) -> None:
        path: Path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        if self._account.ids is not None:
            os.chown(path, *self._account.ids)
