"""Processes that are stopped (SIGSTOP) and go on: the supervisor, a child, and one that never comes back."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pgjobs.worker import supervisor
from pgjobs.worker.children import Child
from pgjobs.worker.ledger import Ledger, create, silent_for
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.process import WorkerProcess
from tests.jobsapp.jobs import hold
from tests.support.waiting import wait_until
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import deeds, row, wait_ended, wait_for_deed

LEASE = ("--lease-seconds", "1.5", "--heartbeat-seconds", "0.4")
QUICK = WorkerOptions(lease_seconds=0.03, heartbeat_seconds=0.01)


@pytest.mark.workers
def test_a_stopped_supervisor_costs_nothing_while_its_children_live(
    spawn: Spawn, gate: Callable[[str], Gate]
) -> None:
    """Its child renews alone; when that dies too, others take the rows; when it goes on, nothing is charged twice."""
    door = gate("door")
    stopped = spawn(*LEASE, concurrency=1)
    job = hold.enqueue(key="held", gate=str(door))
    [child] = stopped.child_pids
    wait_for_deed("held:start")
    stopped.signal(signal.SIGSTOP)
    lease = row(job.pk).lease_expires_at
    wait_until(
        lambda: (row(job.pk).lease_expires_at - lease).total_seconds() > 2, message="renewals beyond a lease"
    )

    spawn(*LEASE, concurrency=1)
    stopped.signal(signal.SIGKILL, child)
    wait_until(lambda: len(deeds("held:start")) == 2, 30, "the second attempt, elsewhere")
    stopped.signal(signal.SIGCONT)

    wait_until(lambda: len(stopped.ready) == 2, 30, "the dead child's successor")
    door.open()
    ended = wait_ended([job])[job.pk]
    assert (ended.status, ended.attempt_count, ended.crash_count) == ("succeeded", 2, 1)
    assert len(deeds("held:end")) == 1


@pytest.fixture
def asleep() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def test_a_child_that_stands_still_for_ten_leases_is_replaced(
    asleep: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the first look: a machine that was suspended finds all its processes silent."""
    monkeypatch.setattr(supervisor, "_SILENT_STILL", 0.2)
    parent: Any = supervisor.Supervisor(QUICK)
    child = Child(QUICK, "1", asleep, 0, create())
    parent._children.append(child)
    try:
        parent._replace_silent()
        assert child.silent_since is None, "it has not begun to run yet"
        Ledger(child.ledger).awake()
        wait_until(lambda: (child.silent_for or 0) > 0.3, message="ten leases")
        parent._replace_silent()
        parent._replace_silent()
        assert child.silent_since and asleep.poll() is None

        Ledger(child.ledger).awake()
        parent._replace_silent()
        assert child.silent_since is None, "it goes on"

        wait_until(lambda: parent._replace_silent() or asleep.poll() is not None, message="its end")
        assert asleep.returncode == -signal.SIGKILL and not child.ended_in_order
    finally:
        parent._restore_signals({})
        os.close(child.ledger)


def test_a_stop_ends_a_stopped_child_and_its_rows_go_back_unspent(
    asleep: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_KILL_AFTER", 0.1)
    parent: Any = supervisor.Supervisor(replace(QUICK, grace_seconds=0.01))
    child = Child(QUICK, "1", asleep, 0, create())
    parent._children.append(child)
    asleep.send_signal(signal.SIGSTOP)
    status = Path(f"/proc/{asleep.pid}/stat")
    wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", message="the stop")
    try:
        parent._on_stop(signal.SIGTERM, None)
        wait_until(lambda: parent._pass_stop_on() or asleep.poll() is not None, message="its end")
        assert child.killed and child.ended_in_order
    finally:
        parent._restore_signals({})
        os.close(child.ledger)


def test_a_process_says_that_it_runs_until_its_supervisor_is_gone(transactional_db: None) -> None:
    reading, writing = os.pipe()
    fd = create()
    process: Any = WorkerProcess(QUICK, lifeline=reading, ledger=fd)
    assert silent_for(fd) is None
    watch = threading.Thread(target=process._watch_lifeline)
    watch.start()
    first = wait_until(lambda: silent_for(fd), message="a sign of life")
    wait_until(lambda: (silent_for(fd) or 1) < first or silent_for(fd) < 0.01, message="another")

    os.close(writing)
    watch.join(10)

    assert not watch.is_alive() and process._requests.get_nowait() == "stop"
    os.close(reading)
