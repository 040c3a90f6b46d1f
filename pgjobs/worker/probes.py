"""Whether the workers of this command live and are ready, for Kubernetes and the like: over HTTP, or by a file.

Answered by the supervisor from memory that it shares with its children. No database is asked: when that is away, a
worker is not ready, but alive, and must not be killed for it.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.worker import clock
from pgjobs.worker.children import Child
from pgjobs.worker.ledger import READY, STARTING, STOPPING, WITHOUT_DATABASE, Pulse, pulse
from pgjobs.worker.options import WorkerOptions

logger = logging.getLogger("pgjobs.supervisor")

_START_SECONDS = 60.0  # for a fresh interpreter to load the project
_FILE_EVERY = 5.0
_STATES = {STARTING: "starting", READY: "ready", WITHOUT_DATABASE: "without database", STOPPING: "stopping"}

Family = Callable[[], tuple[list[Child], bool]]
"""The present children, and whether they have been told to stop."""


@dataclass(frozen=True, slots=True)
class Answer:
    """To one probe."""

    fine: bool
    told: dict[str, Any]


class Probes:
    """Answers in threads of its own, between :meth:`start` and :meth:`stop`."""

    def __init__(self, port: int | None = None, host: str = "127.0.0.1", file: str | None = None) -> None:
        self._port = port
        self._host = host
        self._file = None if file is None else Path(file)
        self._server: ThreadingHTTPServer | None = None
        self._stopping = threading.Event()
        self._family: Family = lambda: ([], False)
        self._stale = 30.0
        self._processes = 1

    def open(self) -> None:
        """Take the port and the file. Raises OSError or OverflowError when they are not to be had."""
        if self._file is not None:
            self._file.touch()
        if self._port is not None:
            self._server = _Server((self._host, self._port), self)

    def start(self, options: WorkerOptions, family: Family) -> None:
        """Answer from now on."""
        self._family = family
        self._processes = options.processes
        self._stale = get_settings().loop_stale_seconds(options.poll_seconds)
        if self._server is not None:
            host, port = self._server.server_address[:2]
            sys.stdout.write(f"pgjobs: probes at http://{host!s}:{port}/live and /ready\n")
            sys.stdout.flush()
            threading.Thread(target=self._server.serve_forever, name="pgjobs-probes", daemon=True).start()
        if self._file is not None:
            threading.Thread(target=self._keep_touching, name="pgjobs-health-file", daemon=True).start()

    def stop(self) -> None:
        """Answer no more, and take the file away."""
        self._stopping.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def live(self) -> Answer:
        """Whether every child's claim loop and heartbeat go round. Nobody is to be killed who is stopping anyway."""
        children, stopping = self._family()
        told = [(child, felt) for child in children if (felt := self._felt(child)) is not None]
        stale = [] if stopping else [child.name for child, felt in told if not self._is_alive(child, felt)]
        return self._answer(not stale, told, "a claim loop or heartbeat stands still" if stale else "")

    def ready(self) -> Answer:
        """Whether all have registered, reach the database, and are not about to end."""
        children, stopping = self._family()
        told = [(child, felt) for child in children if (felt := self._felt(child)) is not None]
        wanted = [(child, felt) for child, felt in told if not child.options.suspect]
        ready = [felt for child, felt in wanted if felt.state == READY and self._is_alive(child, felt)]
        if stopping:
            why = "stopping"
        elif len(ready) < self._processes:
            why = f"{len(ready)} of {self._processes} workers are ready"
        else:
            why = ""
        return self._answer(not why, told, why)

    def _is_alive(self, child: Child, felt: Pulse) -> bool:
        if felt.state == STOPPING:
            return True
        if felt.turned_age is None or felt.beat_age is None:
            return clock.now() - child.started_at < max(self._stale, _START_SECONDS)
        return max(felt.turned_age, felt.beat_age) <= self._stale

    def _felt(self, child: Child) -> Pulse | None:
        """None for a child that ended meanwhile: then its descriptor may be closed, or another's."""
        try:
            felt = pulse(child.ledger)
        except (OSError, ValueError):
            return None
        return felt if child in self._family()[0] else None

    def _answer(self, fine: bool, told: list[tuple[Child, Pulse]], why: str) -> Answer:
        workers = [
            {
                "name": child.name,
                "pid": child.process.pid,
                "state": _STATES.get(felt.state, "unknown"),
                "alive": self._is_alive(child, felt),
                "loop_turned_seconds_ago": _rounded(felt.turned_age),
                "heartbeat_turned_seconds_ago": _rounded(felt.beat_age),
            }
            for child, felt in told
        ]
        return Answer(fine, {"status": "ok" if fine else "unavailable", "why": why, "workers": workers})

    def _keep_touching(self) -> None:
        assert self._file is not None
        complained = False
        while not self._stopping.wait(min(_FILE_EVERY, self._stale / 3)):
            if not self.live().fine:
                continue
            try:
                self._file.touch()
                complained = False
            except OSError as error:
                if not complained:
                    logger.error("the health file %s cannot be touched: %s", self._file, error)
                complained = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], probes: Probes) -> None:
        self.probes = probes
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    timeout = 5  # seconds that a caller may keep a thread waiting

    def do_GET(self) -> None:
        """Answer one probe."""
        self._reply(with_body=True)

    def do_HEAD(self) -> None:
        """The same without the body."""
        self._reply(with_body=False)

    def _reply(self, *, with_body: bool) -> None:
        assert isinstance(self.server, _Server)
        probes = self.server.probes
        ask = {"/live": probes.live, "/ready": probes.ready}.get(self.path.partition("?")[0])
        if ask is None:
            status, told = 404, {"status": "unknown", "why": "there are /live and /ready"}
        else:
            answer = ask()
            status, told = (200 if answer.fine else 503), answer.told
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def version_string(self) -> str:
        """What the header Server says."""
        return "pgjobs"

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds; nobody wants to read of them."""


def _rounded(age: float | None) -> float | None:
    return None if age is None else round(age, 1)
