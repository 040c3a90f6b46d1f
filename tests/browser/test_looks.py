"""How the pages look and read: light and dark, wide and on a phone, without script, and for a screen reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.db.models.functions import Now

from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed, page_of
from tests.faces.rows import make_job, make_worker
from tests.workflows.rows import approval, execution, step

MEASURE = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
OURS = "main"
DJANGOS = "#result_list, #changelist-filter, #changelist-search, .actions, .paginator, .breadcrumbs"
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def night(transactional_db: None) -> list[str]:
    """Something of everything; the paths of all pages: of lists, of rows, and those that ask first."""
    failed = {"attempt": 1, "kind": "error", "message": "card refused " * 20, "traceback": "", "worker": "w"}
    dead = make_job("dead", errors=[failed], last_error=failed["message"], payload={"order": {"id": 2**60}})
    make_job("running", lease_expires_at=Now())
    make_job(queue="nobody")
    worker = make_worker()
    flow = execution()
    step(flow, 0)
    asked = approval(flow, context={"sum": "1,204,331.10"})
    lists = [model._meta.model_name for model in admin.site._registry if model._meta.app_label == "pgjobs"]
    assert len(lists) >= 11
    rows = [dead, worker, flow, asked]
    forms = [f"{listed('job')}bulk/?status=dead", f"{listed('job')}{dead.pk}/options/"]
    forms += [f"{listed('job')}{dead.pk}/discard/"]
    forms += [f"{listed('execution')}{flow.pk}/{verb}/" for verb in ("fork", "signal", "cancel")]
    return [*map(listed, lists), *map(page_of, rows), *forms]


@pytest.mark.parametrize(("scheme", "phone"), [("light", False), ("dark", False), ("dark", True)])
def test_pages_can_be_read_by_everybody(scheme: str, phone: bool, night: list[str], tab_of: TabOf) -> None:
    """Names, roles, headings, contrast, targets, and no wider than the window (scenario 15, schedules apart)."""
    tab = tab_of("ann", color_scheme=scheme, **({"viewport": PHONE} if phone else {}))
    complaints = []
    for path in night:
        tab.open(path)
        complaints += [f"{path}: {complaint}" for complaint in tab.evaluate(MEASURE, [OURS, DJANGOS])]

    assert not complaints, "\n".join(complaints)


def test_everything_works_without_script(tab_of: TabOf) -> None:
    """Scenario 14, its last part: pages are whole, and a button acts."""
    job = make_job("dead")
    tab = tab_of("ann", java_script_enabled=False)
    tab.open(page_of(job))
    tab.get_by_role("button", name="Retry", exact=True).click()
    tab.sees("1 job retried")
    tab.get_by_role("navigation", name="pgjobs").get_by_role("link", name="Jobs").click()
    expect(tab.get_by_role("link", name=str(job.pk), exact=True)).to_be_visible()


def test_the_measure_finds_what_is_wrong(web: str, tabs: Callable[..., Any]) -> None:
    """A page that is wrong in every way it looks for."""
    tab = tabs(web)
    tab.set_content(
        """<main><h1>One</h1><h3>Three</h3><button></button><a href="#a"><svg role="img"></svg></a>
        <table class="pgjobs-table"><tr><th>Head</th></tr></table><p id="x"><font color="#bbbbbb">faint</font></p>
        <p id="x"></p><hr width="3000"></main>"""
    )
    found = "\n".join(tab.evaluate(MEASURE, [OURS, ""]))

    for word in (
        "no language",
        "no name: <button",
        "h3 after h1",
        "without scope",
        "without caption",
        "id x",
    ):
        assert word in found, (word, found)
    assert "contrast" in found and "px wide" in found, found
