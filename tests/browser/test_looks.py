"""How the pages look and read: light and dark, wide and on a phone, by keys alone, and for a screen reader."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed
from tests.browser.scene import FINGERPRINT, Scene

MEASURE = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
OURS = "main"
DJANGOS = "#result_list, #changelist-filter, #changelist-search, .actions, .paginator, .breadcrumbs"
DESK, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}


def measured(tab: Any, *looks: tuple[str, dict[str, int]]) -> list[str]:
    """What is wrong with the page as it stands, in each of these schemes and sizes."""
    found = []
    for scheme, size in looks:
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size(size)
        tab.evaluate(
            "document.getAnimations().forEach((each) => each.finish())"
        )  # links change colour slowly
        where = f"{tab.url} ({scheme}, {size['width']} px)"
        found += [f"{where}: {complaint}" for complaint in tab.evaluate(MEASURE, [OURS, DJANGOS])]
    return found


def test_pages_can_be_read_by_everybody(scene: Scene, tab_of: TabOf) -> None:
    """Names, roles, headings, contrast, targets, and no wider than the window (scenario 15)."""
    tab = tab_of("ann")
    complaints = []
    for path in [*scene.lists, *scene.kinds, *scene.forms]:
        tab.open(path)
        complaints += measured(tab, ("light", DESK), ("dark", PHONE))

    assert not complaints, "\n".join(complaints)


def test_a_problem_is_followed_on_a_phone_in_the_dark_by_keys_alone(scene: Scene, tab_of: TabOf) -> None:
    """Scenario 15: from the verdict to the queue, the cause, a job, the question that waits and its answer."""
    tab = tab_of("ann", viewport=PHONE, color_scheme="dark")
    complaints = []

    def at(words: str) -> None:
        expect(tab.get_by_role("heading", level=1)).to_contain_text(words)
        complaints.extend(measured(tab, ("light", PHONE), ("dark", PHONE)))

    tab.open(listed("overview"))
    at("Overview")
    verdict = tab.locator('[data-pgjobs-region="verdict"]')
    for code in ("NO_WORKER", "LEASE_LOST", "PAUSED"):
        expect(verdict).to_contain_text(re.compile(rf"{code}.*since", re.DOTALL))
    tab.reach(verdict.get_by_role("listitem").filter(has_text="NO_WORKER").get_by_role("link", name="Open"))
    tab.press("Enter", to="queue/nobody")
    at("Queue nobody")
    tab.reach(tab.get_by_role("link", name=str(scene.jobs["ready"].pk), exact=True))
    tab.press("Enter", to="job/")
    at(f"Job {scene.jobs['ready'].pk}")
    why = tab.locator('[data-pgjobs-region="why"] strong').first
    expect(why).to_contain_text(re.compile("no live worker", re.IGNORECASE))
    tab.press("g", "e", to="errorgroup")
    at("Errors")
    tab.press("j", "Enter", to=FINGERPRINT)
    at("Error")
    tab.reach(tab.locator('[data-pgjobs-region="jobs"]').get_by_role("link").first)
    tab.press("Enter", to="job/")
    at(f"Job {scene.jobs['dead'].pk}")
    tab.press("g", "a", to="wait/$")
    at("Approvals")
    tab.press("j", "Enter", to="change")
    at(str(scene.asked[0].name))
    tab.reach(tab.get_by_role("button", name="Approve"))
    tab.press("Enter")
    tab.sees("approved by ann")

    assert not complaints, "\n".join(complaints)


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
