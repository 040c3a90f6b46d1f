"""A worker whose heart beats while its claim loop stands still: no page, probe or command may call that well."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.models.functions import Now

from pgjobs import endpoints
from pgjobs.models import Worker
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed, page_of
from tests.faces.rows import make_job
from tests.support.own_database import QUEUE, connection
from tests.support.waiting import wait_until
from tests.support.workers import Spawner

STALE = {"HEALTH_STALE_SECONDS": 2, "POLL_SECONDS": 0.2, "IDLE_POLL_SECONDS": 0.3}
STUCK = "SELECT count(*) FROM pg_locks WHERE relation = 'pgjobs_execution'::regclass AND NOT granted"


@contextmanager
def table_held() -> Iterator[None]:
    """As during a careless migration: who reads the workflows' table goes on, who would lock a row of it waits."""
    holder = connections.create_connection(QUEUE)
    try:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            cursor.execute("LOCK TABLE pgjobs_execution IN EXCLUSIVE MODE")
        yield
    finally:
        holder.close()


def loops_that_wait() -> int:
    with connection.cursor() as cursor:
        cursor.execute(STUCK)
        return int(cursor.fetchone()[0])


@pytest.mark.workers
def test_a_worker_that_beats_but_does_not_claim_is_called_wedged(
    tab_of: TabOf, spawn_workers: Spawner, settings: Any
) -> None:
    """Scenario 3: a real claim loop that stands in a lock; the pages, the probes and the command tell the same."""
    settings.PGJOBS = {**settings.PGJOBS, **STALE, "HEALTH_ALLOW": ["127.0.0.1", "::1"]}
    endpoints.verdicts.forget()
    workers = spawn_workers("--health-port", "0", env={"PGJOBS_OVERRIDES": json.dumps(STALE)})
    probes = wait_until(lambda: re.search(r"probes at (http:\S+)/live", workers.output()), 30)[1]
    tab = tab_of("viewer")
    assert tab.request.get(f"{probes}/live").status == 200
    with table_held():
        # A lapsed lease calls the reaper, which then comes to that table.
        make_job("running", job_type="jobsapp.echo", queue="aside", lease_expires_at=Now())
        wait_until(loops_that_wait, 20, "a claim loop that waits")
        Worker.objects.update(last_done_at=Now() - timedelta(minutes=7))
        make_job(job_type="jobsapp.echo", available_at=Now() - timedelta(minutes=6))
        wait_until(lambda: tab.request.get(f"{probes}/live").status == 503, 20, "the probe to tell")
        told(tab, workers.names[0])

        assert tab.request.get("/pgjobs/health").status == 503
        assert tab.request.get("/pgjobs/health?check=WEDGED").status == 503
        out = io.StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command("pgjobs_health", stdout=out)
        assert ended.value.code == 2 and "WEDGED" in out.getvalue() and "STALLED" in out.getvalue()


def told(tab: Any, name: str) -> None:
    """The pages of an operator who looks for what is wrong; without a reload at the first."""
    tab.open(listed("overview"))
    verdict = tab.locator('[data-pgjobs-region="verdict"]')
    stalled = verdict.get_by_role("listitem").filter(has_text="STALLED")
    expect(stalled).to_contain_text(re.compile(r"claim loops of its workers do not turn.*since.*\(7 min"))
    expect(verdict).to_contain_text(
        re.compile(rf"WEDGED.*{name}.*its heart beat .* ago, but its claim loop last")
    )
    row = re.compile(rf"wedged.*{name}", re.DOTALL)
    pages = {
        listed("overview"): "STALLED",
        listed("worker"): row,
        page_of(Worker.objects.get()): "wedged",
        listed("queue"): "stalled",
        page_of("default", "queue"): "stalled",
        page_of("aside", "queue"): "wedged",
    }
    for path, word in pages.items():
        tab.open(path)
        tab.sees(word)
        content = tab.locator("#content-main").inner_text()
        assert not re.search(r"\bok\b|Nothing is stuck|✓", content), (path, content)
    tab.open(page_of(Worker.objects.get()))
    for age in ("Heartbeat", "Last poll"):
        expect(tab.locator(f"dt:text-is('{age}') + dd")).to_contain_text("ago")
