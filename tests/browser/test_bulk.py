"""Bulk operations in the browser: a canary, a kill on the way, and a start when nobody would carry it on."""

import os
import re
import signal
import sys
from typing import Any

import pytest
from django.db.models.functions import Now

from pgjobs.models import BulkOperation, Job, OperatorAction
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import page_of
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.support.workers import Spawner
from tests.worker.conftest import hurried

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
    """Scenario 6."""
    dead_jobs(40)
    tab = tab_of("ann")
    operation = plan(tab, 40, pace=10, canary=5)
    # Now, since it looks for operations as it starts and then every ten seconds.
    worker = spawn_workers(env=hurried())
    expect(tab.locator(HEAD)).to_contain_text("waiting", timeout=30_000)
    wait_until(lambda: Effect.objects.count() == 5)

    tab.get_by_role("button", name="Release").click()
    wait_until(lambda: Effect.objects.count() > 10, 30)
    os.kill(worker.child_pids[0], signal.SIGKILL)

    expect(tab.locator(HEAD)).to_contain_text("done", timeout=30_000)
    tab.sees("Complete; no further updates")
    wait_until(lambda: Job.objects.filter(status="succeeded").count() == 40, 30)
    assert Effect.objects.values("key").distinct().count() == 40
    operation.refresh_from_db()
    assert (operation.done, operation.skipped, operation.conflict) == (40, 0, 0)
    started = OperatorAction.objects.filter(target_kind="bulk", verb="start").get()
    assert (started.actor, started.reason) == ("ann", "INC-221 the key was rotated")


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
