"""Pages that are left open: a queue that nobody serves, a wedged worker, a pause, and a database that goes away."""

import io
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db.models.functions import Now

from pgjobs.models import Job, QueuePause
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf, cookies_of, person, ticks
from tests.browser.places import listed, page_of
from tests.browser.tab import Tab
from tests.conftest import OwnServer
from tests.faces.rows import make_job, make_worker
from tests.jobsapp import jobs
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.support.workers import Spawner

VERDICT = '[data-pgjobs-region="verdict"]'


@pytest.mark.workers
def test_a_queue_that_nobody_serves_until_somebody_does(tab_of: TabOf, spawn_workers: Spawner) -> None:
    """Scenario 4: from the verdict to the reason at the oldest job; then the page turns without a reload."""
    gone = Now() - timedelta(minutes=19)
    make_worker("w-7", queues=["billing"], heartbeat_at=gone, stopped_at=gone)
    waiting = jobs.ok.using(queue="billing").enqueue_many([{"value": n} for n in range(500)])
    tab, other = tab_of("viewer"), tab_of("viewer")
    for each in (tab, other):
        each.open(listed("overview"))
    first = tab.locator(VERDICT).get_by_role("listitem").first
    expect(first).to_contain_text(re.compile("NO_WORKER.*billing.*500 jobs due.*w-7", re.DOTALL))
    other.locator(VERDICT).get_by_role("link", name="Open").first.click()
    other.get_by_role("link", name=str(waiting[0]), exact=True).click()
    other.wait_for_url(f"**{page_of(waiting[0], 'job')}")
    why = other.locator('[data-pgjobs-region="why"] strong').first
    expect(why).to_contain_text(re.compile(r"no live worker.*w-7.*stopped at \d\d:", re.IGNORECASE))

    spawn_workers(queues="billing")

    expect(tab.locator(VERDICT)).to_contain_text("Nothing is stuck")
    expect(other.locator('[data-pgjobs-region="head"]')).to_contain_text("succeeded")


@pytest.mark.workers
def test_a_pause_with_its_end(tab_of: TabOf, spawn_workers: Spawner, tmp_path: Path) -> None:
    """Scenario 11: who, why and until when, in a second session and in the command; what runs is finished, nothing
    starts until it ends by itself."""
    spawn_workers()
    running = jobs.hold.using(queue="reports").enqueue(key="long", gate=str(tmp_path / "gate"))
    wait_until(lambda: Effect.objects.filter(key="long:start").exists())
    ann, ben = tab_of("ann"), tab_of("viewer")
    ben.open(listed("overview"))
    ann.open(listed("queue"))
    ann.get_by_label("Name").fill("reports")
    ann.get_by_label("Reason").fill("db migration")
    ann.get_by_label("minutes").fill("30")
    ann.locator("form").get_by_role("button", name="Pause", exact=True).click()
    expect(ann.locator('[data-pgjobs-region="pauses"]')).to_contain_text("db migration")
    held = jobs.ok.using(queue="reports").enqueue(value=1)

    expect(ben.locator(VERDICT)).to_contain_text(
        re.compile("PAUSED.*reports.*ann.*until.*db migration.*since", re.DOTALL)
    )
    ben.open(listed("queue"))
    expect(ben.locator('[data-pgjobs-region="pauses"]')).to_contain_text(
        re.compile(r"reports, by ann since .*, until .*\(in \d+ min.*db migration", re.DOTALL)
    )
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("pgjobs_status", stdout=out)
    assert re.search("PAUSED.*reports.*ann.*until.*db migration", out.getvalue(), re.DOTALL)
    (tmp_path / "gate").touch()
    wait_until(lambda: Job.objects.get(pk=running.pk).status == "succeeded")
    assert Job.objects.get(pk=held.pk).status == "pending"
    QueuePause.objects.update(until=Now() + timedelta(seconds=1))  # half an hour has passed
    wait_until(lambda: Job.objects.get(pk=held.pk).status == "succeeded", 20)
    ben.open(listed("operatoraction"))
    expect(ben.get_by_role("row", name=re.compile("pause"))).to_contain_text("db migration")


@pytest.mark.outage
def test_a_database_that_goes_away_is_not_taken_for_silence(
    own_server: OwnServer, web: str, tabs: Callable[..., Tab]
) -> None:
    """Scenario 14: the age of the data is said, nothing turns to zero, and it recovers by itself."""
    make_job(queue="billing")
    tab = tabs(web, cookies_of(person("viewer"), web))
    tab.expect_complaint("status of 500")
    tab.open(listed("overview"))
    before = tab.locator(VERDICT).inner_text()
    assert "billing" in before

    own_server.server.stop()

    expect(tab.locator("[data-pgjobs-status]")).to_contain_text(re.compile(r"Data is \d+ s old; retrying"))
    expect(tab.locator("[data-pgjobs-live]")).to_have_class(re.compile("pgjobs-late"))
    assert tab.locator(VERDICT).inner_text() == before

    own_server.server.start()
    own_server.reconnect()
    expect(tab.locator("[data-pgjobs-status]")).to_contain_text("Live")


def test_a_page_in_use_is_left_alone(tab_of: TabOf) -> None:
    """Scenario 14, its first part, on the pages themselves: an open traceback, a ticked row."""
    error = {
        "attempt": 1,
        "kind": "error",
        "message": "no",
        "traceback": 'File "x.py", line 1, in y\n',
        "worker": "w",
    }
    job = make_job(errors=[error], attempt_count=1, available_at=Now() + timedelta(hours=1))
    make_job("running")
    reading, ticking = tab_of("ann"), tab_of("ann")
    reading.open(page_of(job))
    reading.get_by_text("Whole traceback").click()
    ticking.open(listed("runningjob"))
    ticking.get_by_role("checkbox").first.check()
    for tab in (reading, ticking):
        ticks(tab, 3)

    expect(reading.get_by_text('File "x.py", line 1, in y')).to_be_visible()
    expect(ticking.get_by_role("checkbox").first).to_be_checked()
    for tab in (reading, ticking):
        expect(tab.locator("[data-pgjobs-status]")).to_contain_text("Live")


def test_a_list_says_what_is_newer_and_does_not_move(tab_of: TabOf) -> None:
    """Rows that somebody is ticking stay where they are; what came since is told, and shown when asked for."""
    old = make_job()
    tab = tab_of("ann")
    tab.open(listed("job"))
    tab.locator("#result_list").get_by_role("checkbox").last.check()
    make_job()
    newest = make_job()

    bar = tab.locator('[data-pgjobs-region="newer"]')
    expect(bar).to_contain_text("2 newer jobs: show")
    expect(tab.locator("#result_list tbody tr")).to_have_count(1)
    expect(tab.locator("#result_list").get_by_role("checkbox").last).to_be_checked()
    bar.get_by_role("link", name="show").click()
    expect(tab.locator("#result_list tbody tr")).to_have_count(3)
    expect(tab.locator("#result_list tbody tr").first).to_contain_text(str(newest.pk))
    tab.open(f"{listed('job')}?status=ready")
    expect(tab.locator('[data-pgjobs-region="newer"]')).to_have_count(0)
    assert old.pk < newest.pk
