"""Who the server runs as, and the private folder that it gets: PostgreSQL refuses to run as root."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from example_project.postgres.binaries import PostgresUnavailable

PORT = 5432  # only a part of the socket's name: nothing listens on the network
MAX_SOCKET_PATH = 100  # bytes; Linux allows 107, macOS 103


class Account:
    """The account that the server runs under: PostgreSQL refuses to run as root."""

    def __init__(self) -> None:
        self.ids: tuple[int, int] | None = None
        if os.name != "posix":
            raise PostgresUnavailable(
                f"An embedded PostgreSQL needs unix sockets and signals; this is {sys.platform}. "
                "Set DATABASE_URL to a server that runs."
            )
        if os.geteuid() != 0:
            return
        import pwd

        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                self.ids = (entry.pw_uid, entry.pw_gid)
                return
        raise PostgresUnavailable(
            "PostgreSQL refuses to run as root, and there is neither an account `postgres` nor `nobody` "
            "to run it under. Create one, run this as another user, or set DATABASE_URL."
        )

    @property
    def popen_arguments(self) -> dict[str, Any]:
        if self.ids is None:
            return {}
        return {"user": self.ids[0], "group": self.ids[1], "extra_groups": []}

    def can_enter(self, folder: Path) -> bool:
        if self.ids is None:
            return True
        return all(step.stat().st_mode & 0o001 for step in (folder, *folder.parents))


def private_folder(account: Account) -> Path:
    """A new folder that only the server's account (and root) can enter, short enough to hold a socket."""
    name_length = len(f"/pgjobs-12345678/.s.PGSQL.{PORT}")
    for parent in (Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")):
        short = len(os.fsencode(parent)) + name_length <= MAX_SOCKET_PATH
        if short and parent.is_dir() and os.access(parent, os.W_OK) and account.can_enter(parent):
            folder = Path(tempfile.mkdtemp(prefix="pgjobs-", dir=parent))
            if account.ids is not None:
                os.chown(folder, *account.ids)
            return folder
    raise PostgresUnavailable(
        f"No temporary folder whose sockets fit into {MAX_SOCKET_PATH} bytes and that the server's account "
        "can enter. Set TMPDIR to a short, writable path that all users can enter."
    )
