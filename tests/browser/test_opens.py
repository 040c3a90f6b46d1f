"""Every page before many jobs, as somebody who may only look; then several tabs on the same page."""

import os
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pgjobs.admin import window
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf, asked, ticks
from tests.browser.places import listed, page_of
from tests.browser.scene import Scene
from tests.faces.rows import seed, unseed
from tests.faces.test_admin_bounds import _NO_WORK, BUDGETS

ROWS = int(os.environ.get("PGJOBS_TEST_LARGE", "25000"))
MOST_STATEMENTS = 24
RIGHTS_READ = 2  # of somebody who may not do everything: their own, and those of their groups
SECONDS, TRIES = 1.0, 3  # loose, and not for the moments in which the machine does something else

pytestmark = pytest.mark.timeout(180 if ROWS < 1_000_000 else 1_200)


@pytest.fixture
def many(transactional_db: None) -> Iterator[None]:
    """So many jobs, most of them ended."""
    seed(ROWS)
    yield
    unseed()


def addresses(scene: Scene) -> list[str]:
    """All lists, a page of each kind of row, each state's tab, a far page, and the further tabs."""
    job = listed("job")
    states = ("ready", "running", "scheduled", "dead", "failed", "cancelled", "succeeded")
    return [
        *scene.lists,
        *scene.kinds,
        page_of("queue-3", "queue"),
        *(f"{job}?status={state}" for state in states),
        f"{job}?p=100",
        f"{job}?before_id=15000",
        f"{listed('deadjob')}?status=failed",
        f"{listed('wait')}?decided=1",
    ]


def test_every_page_opens_before_many_jobs(
    many: None, scene: Scene, tab_of: TabOf, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 1: in time, within the budget of statements, with counts that say where they end."""
    monkeypatch.setattr(window, "WINDOW", min(window.WINDOW, ROWS // 2))
    tab = tab_of("viewer")
    tab.context.add_init_script('localStorage.setItem("pgjobs.paused", "1")')  # ticks would be counted too
    budgets = {address: most + RIGHTS_READ for address, most, _ in BUDGETS}
    for path in addresses(scene):
        spent = []
        while not spent or (min(spent) > SECONDS and len(spent) < TRIES):
            statements.clear()
            began = time.monotonic()
            tab.open(path)
            spent.append(time.monotonic() - began)
            sent = [sql for sql in statements if not sql.lstrip().startswith(_NO_WORK)]
            assert len(sent) <= budgets.get(path, MOST_STATEMENTS), (path, sent)
        assert min(spent) <= SECONDS, (path, spent)
        assert "Not available" not in tab.content(), path

    tab.open(listed("job"))
    tab.sees("10,000+ jobs")
    tab.open(f"{listed('job')}?status=dead&job_type=nothing")
    tab.sees("0 jobs")
    tab.open(f"{listed('job')}?q=type:nothing+state:succeeded")
    tab.sees("0 jobs")
    tab.sees(re.compile(f"Looked through the newest {window.WINDOW:,} jobs only.*back to"))
    tab.get_by_role("link", name=re.compile("^Search the .* before that")).click()
    tab.sees(re.compile(r"Looked through jobs below id [\d,]+"))
    expect(tab.locator("#result_list")).to_have_count(0)


def test_many_tabs_cost_no_more_than_one(many: None, tab_of: TabOf, statements: list[str]) -> None:
    """Scenario 1, its last part: what a page shows is read once in two seconds, however many look at it."""
    first = tab_of("viewer")
    first.open(listed("overview"))
    once = reads(statements)
    assert once
    open_tabs: list[Any] = [first, tab_of("viewer"), tab_of("viewer")]
    for tab in open_tabs:
        tab.open(listed("overview"))
    statements.clear()
    began, before = time.monotonic(), sum(map(asked, open_tabs))
    for tab in open_tabs:
        ticks(tab, 4)
    seconds, requests = time.monotonic() - began, sum(map(asked, open_tabs)) - before

    assert requests >= 12
    assert once <= reads(statements) <= once * (seconds / 2 + 2), (once, len(statements), seconds, requests)


def reads(statements: list[str]) -> int:
    """How many of them read the tables of the queue."""
    return sum(sql.lstrip().startswith(("SELECT", "WITH")) and "FROM pgjobs_" in sql for sql in statements)
