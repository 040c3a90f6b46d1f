"""What workers say of themselves and count: by real processes."""

import platform
import signal
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from pgjobs.models import Activity, Job, Minute, Worker
from pgjobs.queue.rollups import LIFETIME
from pgjobs.worker.registration import code_version
from tests.jobsapp import jobs
from tests.support.waiting import wait_until
from tests.worker.conftest import Spawn
from tests.worker.observation import wait_ended, wait_for_deed

pytestmark = [pytest.mark.workers, pytest.mark.django_db(transaction=True)]


def counted() -> dict[tuple[str, str], tuple[int, ...]]:
    """The sums of all times."""
    found = Minute.objects.filter(minute=LIFETIME)
    return {
        (each.queue, each.job_type.removeprefix("jobsapp.")): (
            each.done,
            each.failed,
            each.dead,
            each.retried,
            sum(each.run_counts),
        )
        for each in found
    }


def test_a_worker_counts_what_it_settled_and_says_how_it_is(spawn: Spawn, gate: Callable[[str], Any]) -> None:
    workers = spawn(env={"PGJOBS_CODE_VERSION": "v141"})
    open_gate = gate("hold")
    made = [jobs.ok.enqueue() for _ in range(3)]
    made.append(jobs.fail_with.using(max_attempts=2, queue="other").enqueue(message="no"))
    made.append(jobs.fail_for_good.enqueue(reason="no"))
    held = jobs.hold.enqueue(key="held", gate=str(open_gate))
    wait_for_deed("held:start")

    def seen() -> Worker | None:
        return Worker.objects.filter(busy=1, last_done_at__isnull=False, chores__has_key="reaper").first()

    row = wait_until(seen, 20, "a worker that says it is busy")
    assert row.code_version == "v141" and row.heartbeat_seconds == 0.5 and not row.draining
    assert "jobsapp.ok" in row.handlers and row.rss_bytes > 1_000_000
    assert row.runtime["python"] == platform.python_version() and datetime.fromisoformat(row.chores["reaper"])
    workers.signal(signal.SIGTERM)
    wait_until(lambda: Worker.objects.filter(draining=True).first(), 20, "a worker that drains")
    open_gate.open()
    wait_ended([held])
    assert workers.wait(30) == 0, workers.output()
    happened = Activity.objects.exclude(kind="worker_stopped").order_by("pk").values_list("kind", "job_type")
    assert happened[0] == ("worker_started", "") and happened[0] not in happened[1:]
    assert set(happened[1:]) - {("job_died", "jobsapp.fail_with")} == {
        ("error_new", "jobsapp.fail_with"),
        ("error_new", "jobsapp.fail_for_good"),
        ("job_died", "jobsapp.fail_for_good"),
    }
    assert Activity.objects.filter(kind="worker_stopped", target_id=row.name).count() == 1
    Job.objects.filter(status="pending").delete()
    found = counted()
    assert found["default", "ok"] == (3, 0, 0, 0, 3)
    assert found["default", "fail_for_good"] == (0, 1, 0, 0, 1)
    assert found["default", "hold"] == (1, 0, 0, 0, 1)
    done, failed, dead, retried, runs = found["other", "fail_with"]
    assert (done, failed, runs) == (0, 0, dead + retried) and retried == 1


def test_the_version_of_the_code(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(**given: Any) -> str:
        settings.PGJOBS = {**settings.PGJOBS, **given}
        return code_version()

    monkeypatch.delenv("PGJOBS_CODE_VERSION", raising=False)
    assert version() == ""
    monkeypatch.setenv("PGJOBS_CODE_VERSION", "from-env")
    assert version() == "from-env"
    assert version(CODE_VERSION="x" * 200) == "x" * 100
    assert version(CODE_VERSION=lambda: "called\x00") == "called\ufffd"
    assert version(CODE_VERSION=lambda: 1 / 0) == ""
