"""Jobs in the browser: a killed worker, a stale tab, a viewer who may only look, hostile text."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
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
from tests.worker.conftest import hurried

HOSTILE = "</script><img src=x onerror=alert(1)>\"'"


@pytest.mark.workers
def test_a_killed_worker_is_seen_and_its_job_goes_on_elsewhere(
    tab_of: TabOf, spawn_workers: Spawner, tmp_path: Path
) -> None:
    """Scenario 2. The supervisor is stopped first: it would hand the rows back at once and hide the loss."""
    gate = tmp_path / "gate"
    lost = spawn_workers(concurrency=1, env=hurried())
    held = jobs.hold.enqueue(key="long", gate=str(gate))
    wait_until(lambda: Effect.objects.filter(key="long:start").exists())
    spawn_workers(concurrency=1, env=hurried())
    tab = tab_of("viewer")
    tab.open(listed("runningjob"))
    expect(tab.get_by_role("row", name=re.compile(rf"\b{held.pk}\b"))).to_contain_text(lost.names[0])

    lost.signal(signal.SIGSTOP)
    os.kill(lost.child_pids[0], signal.SIGKILL)

    # Without a reload: the page follows from the dead worker to the one that took over.
    row = tab.get_by_role("row", name=re.compile(rf"\b{held.pk}\b"))
    expect(row).to_contain_text("2 of 5, 1 crashed", timeout=40_000)
    expect(row).not_to_contain_text(lost.names[0])
    other = tab_of("viewer")
    other.open(listed("worker"))
    silent = other.get_by_role("row", name=re.compile(re.escape(lost.names[0])))
    expect(silent).to_contain_text(re.compile(r"silent for \d+"), timeout=40_000)
    other.open(page_of(held, "job"))
    expect(other.locator('[data-pgjobs-region="attempts"]')).to_contain_text(lost.names[0])
    gate.touch()
    expect(other.locator('[data-pgjobs-region="head"]')).to_contain_text("succeeded")
    expect(other.locator("[data-pgjobs-status]")).to_contain_text("Complete; no further updates")


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


def test_a_viewer_sees_no_buttons_and_is_refused(tab_of: TabOf) -> None:
    """Scenario 10: what the page does not offer is refused when it is sent all the same, and is recorded."""
    job = make_job("dead")
    tab = tab_of("viewer")
    tab.expect_complaint("status of 403")
    tab.open(page_of(job))
    for name in ("Retry", "Cancel", "Release", "Discard", "Reveal redacted"):
        assert tab.get_by_role("button", name=re.compile(name)).count() == 0
        assert tab.get_by_role("link", name=re.compile(f"^{name}")).count() == 0

    for verb in ("retry", "cancel", "release", "discard"):
        assert post(tab, f"{page_of(job)}../{verb}/", {"expected": "dead:1"}) == 403
    assert Job.objects.get(pk=job.pk).status == "dead"
    refused = OperatorAction.objects.filter(actor="viewer", refused=1).values_list("verb", flat=True)
    assert sorted(refused) == ["cancel", "discard", "release", "retry"]


def post(tab: Any, path: str, values: dict[str, str]) -> int:
    """Sends a form with the session and the token of the tab; the status code of the answer."""
    return int(
        tab.evaluate(
            """async ([path, values]) => {
                const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
                const body = new URLSearchParams({ ...values, csrfmiddlewaretoken: token });
                return (await fetch(path, { method: "POST", body, redirect: "manual" })).status;
            }""",
            [path, values],
        )
    )


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
