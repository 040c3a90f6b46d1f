"""A proxy before PostgreSQL that can lose a reply: the statement is done, and its client never hears of it."""

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

SIZE = 65_536


class Proxy:
    """Listens on a unix socket in a folder of its own and passes everything on to the server of a connection.

    `lose_reply(text)`: the next reply with rows to a statement that contains `text` is swallowed, and its
    connection cut. The server has committed by then, since it answers a statement of its own after the commit.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        """`params` as a Django connection gives them to its driver."""
        self._host = str(params.get("host") or "localhost")
        self._port = int(params.get("port") or 5432)
        self.folder = Path(tempfile.mkdtemp(prefix="proxy"))
        self.lost = 0
        """Replies swallowed so far."""
        self._wanted: bytes | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listening = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._listening.bind(str(self.folder / f".s.PGSQL.{self._port}"))
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        _close(self._listening)
        for end in list(self._open):
            _close(end)
        shutil.rmtree(self.folder)

    def lose_reply(self, text: str) -> None:
        """From now on; once."""
        self._wanted = text.encode()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:
                _close(client)
                continue
            self._open |= {client, server}
            asked = threading.Event()
            threading.Thread(target=self._ask, args=(client, server, asked), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client, asked), daemon=True).start()

    def _connect(self) -> socket.socket:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
            return server
        return socket.create_connection((self._host, self._port))

    def _ask(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        for data in _received(client):
            if self._wanted is not None and self._wanted in data:
                asked.set()
            with contextlib.suppress(OSError):
                server.sendall(data)
        _close(server)

    def _answer(self, server: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        for data in _received(server):
            if asked.is_set() and self._takes(data):
                break
            asked.clear()
            with contextlib.suppress(OSError):
                client.sendall(data)
        _close(client)
        _close(server)

    def _takes(self, data: bytes) -> bool:
        """Whether this is the reply to lose. One without rows is let through: nothing was done."""
        with self._lock:
            if self._wanted is None or b"SELECT 0\0" in data or b"UPDATE 0\0" in data:
                return False
            self._wanted = None
            self.lost += 1
            return True


def _received(end: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while data := end.recv(SIZE):
            yield data


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
