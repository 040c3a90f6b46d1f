"""Bulk operations in the browser: a canary, a kill on the way, and a start when nobody would carry it on."""

import os
import re
import signal
import sys
from typing import Any

import pytest
from django.db.models.functions import Now

from pgjobs.models import BulkOperation, Job
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed, page_of
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.support.workers import Spawner

FINGERPRINT = "f" * 40
HEAD = '[data-pgjobs-region="head"]'


def dead_jobs(count: int) -> None:
    """Jobs of one cause, which would succeed now."""
    Job.objects.bulk_create(
        Job(
            job_type="jobsapp.effect",
            payload={"key": f"dead-{n}"},
            status="dead",
            attempt_count=5,
            completed_at=Now(),
            error_class="ChargeDeclined",
            fingerprint=FINGERPRINT,
            last_error="ChargeDeclined: refused",
        )
        for n in range(count)
    )


def plan(tab: Any, count: int, *, pace: int, canary: int | None = None) -> BulkOperation:
    """From the group of errors to the page of the operation."""
    tab.open(page_of(FINGERPRINT, "errorgroup"))
    tab.get_by_role("link", name="Retry all…").click()
    tab.sees(f"{count} jobs.")
    tab.get_by_label("Reason").fill("INC-221 the key was rotated")
    tab.get_by_label("Jobs per second").fill(str(pace))
    if canary:
        tab.get_by_label("Canary").fill(str(canary))
    tab.get_by_role("button", name=f"Retry {count} jobs").click()
    tab.wait_for_url(re.compile("/bulkoperation/"))
    return BulkOperation.objects.get()


@pytest.mark.workers
def test_a_canary_then_all_the_rest_over_a_killed_worker(tab_of: TabOf, spawn_workers: Spawner) -> None:
    """Scenario 6. Who dies serves another queue: it carried the operation and ran none of its jobs."""
    dead_jobs(312)
    tab = tab_of("ann")
    operation = plan(tab, 312, pace=100, canary=5)
    other, able = spawn_workers(queues="other", wait=False), spawn_workers(queues="default", wait=False)
    for workers in (other, able):
        workers.wait_ready(1)
    expect(tab.locator(HEAD)).to_contain_text("waiting for release")
    wait_until(lambda: Effect.objects.count() == 5)
    assert Job.objects.filter(status="dead").count() == 307, (
        "nothing comes after the canary until it is released"
    )

    tab.get_by_role("button", name="Release").click()
    wait_until(lambda: Effect.objects.count() > 40, 30)
    for pid in (other.pid, *other.child_pids):
        os.kill(pid, signal.SIGKILL)

    expect(tab.locator(HEAD)).to_contain_text("312 of 312: done 312", timeout=30_000)
    tab.sees("Complete; no further updates")
    wait_until(lambda: Job.objects.filter(status="succeeded").count() == 312, 30)
    assert sorted(Effect.objects.values_list("key", flat=True)) == sorted(f"dead-{n}" for n in range(312))
    operation.refresh_from_db()
    assert (operation.done, operation.skipped, operation.conflict) == (312, 0, 0)
    tab.open(listed("operatoraction"))
    started = tab.get_by_role("row", name=re.compile(r"\bstart\b"))
    for text in ("ann", f"{operation.pk}", "INC-221 the key was rotated"):
        expect(started).to_contain_text(text)
    tab.open(listed("overview"))
    expect(tab.get_by_role("link", name=re.compile(r"^Dead 0\b"))).to_be_visible()


@pytest.mark.workers
def test_where_nobody_works_the_page_shows_the_command_that_would(
    tab_of: TabOf, spawn_workers: Spawner
) -> None:
    """Scenario 7: the command that is shown finishes the operation, and the page follows."""
    dead_jobs(30)
    tab = tab_of("ann")
    operation = plan(tab, 30, pace=10)
    expect(tab.locator(HEAD)).to_contain_text("No worker lives that would carry it on")
    shown = tab.locator(f"{HEAD} code").inner_text()
    assert shown == f"manage.py pgjobs_bulk run {operation.pk}"

    done = spawn_workers.start([sys.executable, *shown.split()])

    expect(tab.locator(HEAD)).to_contain_text("done")
    assert done.wait() == 0
    assert Job.objects.filter(status="pending").count() == 30
