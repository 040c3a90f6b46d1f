"""Jobs in the browser: a killed worker, a stale tab, hostile text."""

import io
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db.models.functions import Now

from pgjobs.models import Job, OperatorAction
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed, page_of
from tests.faces.rows import make_job
from tests.jobsapp import jobs
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.support.workers import Spawner

HOSTILE = "</script><img src=x onerror=alert(1)>\"'"


@pytest.mark.workers
def test_a_killed_worker_is_seen_and_its_job_goes_on_elsewhere(
    tab_of: TabOf, spawn_workers: Spawner, tmp_path: Path
) -> None:
    """Scenario 2. The supervisor is stopped first: it would hand the rows back at once and hide the loss.

    Nor does the other worker reap, so that the time in between can be looked at; a command does it then.
    """
    gate = tmp_path / "gate"

    def held(key: str) -> Any:
        made = jobs.hold.enqueue(key=key, gate=str(gate))
        wait_until(lambda: Effect.objects.filter(key=f"{key}:start").exists())
        return made

    lost = spawn_workers(concurrency=1)
    alone = held("long")
    other = spawn_workers(
        "--no-reaper", concurrency=3, env={"PGJOBS_OVERRIDES": '{"CRASH_DELAY_SECONDS": 0.1}'}
    )
    others = [held("first"), held("second")]
    [name] = lost.names
    running, tab = tab_of("viewer"), tab_of("viewer")
    running.open(listed("runningjob"))
    tab.open(listed("overview"))
    row = running.get_by_role("row", name=re.compile(rf"\b{alone.pk}\b"))
    expect(row).to_contain_text(name)

    lost.signal(signal.SIGSTOP)
    os.kill(lost.child_pids[0], signal.SIGKILL)

    expect(row).to_contain_text(re.compile(r"overdue by \d+ s.*silent", re.DOTALL))
    problem = (
        tab.locator('[data-pgjobs-region="verdict"]').get_by_role("listitem").filter(has_text="WORKER_SILENT")
    )
    expect(problem).to_contain_text(re.compile(rf"{name}.*since", re.DOTALL))
    tab.open(listed("worker"))
    expect(tab.get_by_role("row", name=re.compile(name))).to_contain_text(re.compile(r"silent for \d+"))
    call_command("runreaper", "--once", stdout=io.StringIO())
    # Without a reload: the page follows from the dead worker to the one that took over.
    expect(row).to_contain_text("2 of 5, 1 crashed")
    expect(row).not_to_contain_text(name)
    for each in others:
        mine = running.get_by_role("row", name=re.compile(rf"\b{each.pk}\b"))
        expect(mine).to_contain_text(re.compile(rf"left.*{other.names[0]}.*1 of 5", re.DOTALL))
    tab.open(page_of(alone, "job"))
    attempts = tab.locator('[data-pgjobs-region="attempts"]')
    expect(attempts).to_contain_text(re.compile(rf"lease expired; the worker went silent.*{name}", re.DOTALL))
    gate.touch()
    expect(tab.locator('[data-pgjobs-region="head"]')).to_contain_text("succeeded")
    expect(tab.locator("[data-pgjobs-status]")).to_contain_text("Complete; no further updates")


@pytest.mark.workers
def test_a_stale_tab_does_nothing_and_says_what_happened(
    tab_of: TabOf, spawn_workers: Spawner, tmp_path: Path
) -> None:
    """Scenario 8."""
    gate = tmp_path / "gate"
    job = make_job(
        "dead", job_type="jobsapp.hold", payload={"key": "once", "gate": str(gate)}, attempt_count=5
    )
    first, second = tab_of("ann"), tab_of("ben")
    for tab in (first, second):
        tab.open(page_of(job))
    worker = spawn_workers(concurrency=1)
    first.get_by_role("button", name="Retry", exact=True).click()
    first.sees("1 job retried")
    wait_until(lambda: Effect.objects.filter(key="once:start").exists())

    second.get_by_role("button", name="Retry", exact=True).click()

    now = rf"now running \(attempt 6, {worker.names[0]}"
    second.sees(re.compile(rf"Nothing was done: .*it was dead when you looked; it is {now}"))
    gate.touch()
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "succeeded")
    assert Effect.objects.filter(key="once:start").count() == 1
    done = OperatorAction.objects.filter(verb="retry").order_by("pk").values_list("actor", "done", "refused")
    assert list(done) == [("ann", 1, 0), ("ben", 0, 1)]


def test_hostile_text_is_shown_and_never_runs(tab_of: TabOf) -> None:
    job = make_job(
        "dead",
        job_type=f"x{HOSTILE}"[:200],
        queue=HOSTILE[:100],
        payload={HOSTILE: [HOSTILE, {"deep": HOSTILE}], "n": 2**53 + 1},
        last_error=HOSTILE,
        errors=[{"attempt": 1, "kind": "error", "message": HOSTILE, "traceback": HOSTILE, "worker": HOSTILE}],
        note=HOSTILE,
        completed_at=Now(),
    )
    tab = tab_of("viewer")
    tab.on("dialog", lambda dialog: dialog.dismiss())
    for path in (page_of(job), listed("job"), listed("deadjob"), listed("errorgroup"), listed("overview")):
        tab.open(path)
        assert tab.locator("img[src=x]").count() == 0
    tab.open(page_of(job))
    tab.sees("onerror=alert(1)")
    tab.sees(str(2**53 + 1))
