"""Probes of runworkers: alive and ready by what the children do, whatever the database does."""

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OwnServer
from tests.jobsapp import jobs
from tests.support.waiting import wait_until
from tests.support.workers import Workers
from tests.worker.conftest import Spawn, hurried
from tests.worker.observation import wait_for_deed

pytestmark = [pytest.mark.workers]

SHORT = {"HEALTH_STALE_SECONDS": 2, "POLL_SECONDS": 0.2, "IDLE_POLL_SECONDS": 0.3}
ADDRESS = re.compile(r"probes at (http://127\.0\.0\.1:\d+)/live")


def asked(workers: Workers, path: str) -> tuple[int, dict[str, Any]]:
    found = wait_until(lambda: ADDRESS.search(workers.output()), 30, "the address of the probes")
    try:
        with urllib.request.urlopen(f"{found[1]}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_for(workers: Workers, path: str, status: int) -> dict[str, Any]:
    def answered() -> dict[str, Any] | None:
        code, told = asked(workers, path)
        return told if code == status else None

    return wait_until(answered, 30, lambda: f"{status} of {path}: {asked(workers, path)}")


@pytest.mark.django_db(transaction=True)
def test_a_child_that_stands_still_is_not_alive(spawn: Spawn, tmp_path: Path) -> None:
    file = tmp_path / "health"
    workers = spawn("--health-port", "0", "--health-file", str(file), processes=2, settings=SHORT)
    assert asked(workers, "/live")[0] == 200
    told = wait_for(workers, "/ready", 200)
    assert [worker["state"] for worker in told["workers"]] == ["ready", "ready"]
    assert asked(workers, "/nothing")[0] == 404
    name, victim = workers.ready[0]
    workers.signal(signal.SIGSTOP, victim)
    told = wait_for(workers, "/live", 503)
    assert [w["name"] for w in told["workers"] if not w["alive"]] == [name]
    assert asked(workers, "/ready")[0] == 503
    touched = file.stat().st_mtime
    wait_until(lambda: time.time() - touched > 3, 20, "time to pass")
    assert file.stat().st_mtime == touched, "the file was touched though a worker stands still"
    workers.signal(signal.SIGCONT, victim)
    wait_for(workers, "/live", 200)
    wait_until(lambda: file.stat().st_mtime > touched, 20, "the file to be touched again")
    workers.signal(signal.SIGTERM)
    assert workers.wait(30) == 0 and not file.exists()


@pytest.mark.django_db(transaction=True)
def test_while_it_drains_it_is_alive_but_not_ready(spawn: Spawn, gate: Callable[[str], Any]) -> None:
    open_gate = gate("held")
    workers = spawn("--health-port", "0", settings=SHORT)
    jobs.hold.enqueue(key="held", gate=str(open_gate))
    wait_for_deed("held:start")
    workers.signal(signal.SIGTERM)
    told = wait_for(workers, "/ready", 503)
    assert told["why"] == "stopping" and asked(workers, "/live")[0] == 200
    open_gate.open()
    assert workers.wait(30) == 0


@pytest.mark.outage
def test_a_database_that_is_away_makes_nobody_dead(own_server: OwnServer) -> None:
    workers = own_server.spawn_workers(
        "--health-port", "0", env=hurried({**SHORT, "HEALTH_STALE_SECONDS": 15})
    )
    wait_for(workers, "/ready", 200)
    own_server.server.stop()
    told = wait_for(workers, "/ready", 503)
    assert told["workers"][0]["state"] == "without database"
    until = time.monotonic() + 3
    while time.monotonic() < until:
        assert asked(workers, "/live")[0] == 200
    own_server.server.start()
    wait_for(workers, "/ready", 200)


@pytest.mark.django_db(transaction=True)
def test_a_port_that_is_taken_is_told(spawn: Spawn) -> None:
    first = spawn("--health-port", "0", settings=SHORT)
    wait_until(lambda: ADDRESS.search(first.output()), 30, "the address")
    port = ADDRESS.search(first.output())[1].rpartition(":")[2]  # type: ignore[index]
    second = spawn("--health-port", port, wait=False)
    assert second.wait(60) == 1
    assert f"--health-port {port} of 127.0.0.1" in second.output() and "Give a free port" in second.output()
    assert os.path.exists(f"/proc/{first.pid}")
