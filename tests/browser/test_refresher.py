"""The live regions: what is replaced, what is left alone, and what is said when the server does not answer."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.browser import probe as site
from tests.browser.chromium import expect
from tests.browser.tab import Tab
from tests.support.waiting import wait_until

pytestmark = pytest.mark.urls("tests.browser.probe")


@pytest.fixture
def probe() -> site.Probe:
    site.probe.__init__()  # type: ignore[misc]
    return site.probe


@pytest.fixture
def tab(probe: site.Probe, web: str, tabs: Callable[..., Tab]) -> Tab:
    tab = tabs(web)
    tab.open("/probe/")
    return tab


def region(tab: Tab, name: str) -> Any:
    return tab.locator(f'[data-pgjobs-region="{name}"]')


def status(tab: Tab) -> Any:
    return tab.locator("[data-pgjobs-status]")


@contextmanager
def still(probe: site.Probe) -> Iterator[None]:
    """Nothing changes on the page inside, so that what is done to it is not done to a part that has just gone."""
    probe.still = True
    ticks(probe, 2)
    yield
    probe.still = False


def ticks(probe: site.Probe, more: int) -> None:
    """Waits until the server has been asked so many times more."""
    goal = probe.count + more
    wait_until(lambda: probe.count >= goal, 10, f"{more} more ticks")


def test_regions_follow_the_server(tab: Tab, probe: site.Probe) -> None:
    ticks(probe, 2)
    expect(region(tab, "plain")).to_contain_text(re.compile(r"plain ([2-9]|\d\d)"))
    expect(status(tab)).to_contain_text("Live, every 0.3 s")


def test_what_a_person_uses_is_left_alone_and_the_page_says_so(tab: Tab, probe: site.Probe) -> None:
    with still(probe):
        region(tab, "ticks").get_by_role("checkbox").check()
        region(tab, "typed").get_by_role("searchbox").fill("state:dead")
        region(tab, "folds").get_by_text("Traceback").click()
        region(tab, "links").get_by_role("link").focus()
    ticks(probe, 3)

    expect(region(tab, "plain")).to_contain_text(re.compile(r"plain ([3-9]|\d\d)"))
    expect(region(tab, "ticks").get_by_role("checkbox")).to_be_checked()
    expect(region(tab, "typed").get_by_role("searchbox")).to_have_value("state:dead")
    expect(region(tab, "folds").get_by_text("deep inside")).to_be_visible()
    expect(region(tab, "links").get_by_role("link")).to_be_focused()
    for name in ("ticks", "typed", "folds", "links"):
        expect(region(tab, name)).to_have_class("pgjobs-held")
    expect(status(tab)).to_contain_text("4 parts in use and left alone")


def test_what_was_let_go_is_replaced_again(tab: Tab, probe: site.Probe) -> None:
    """Also where the server itself sends a block open: only a person's choice holds a region."""
    box = region(tab, "ticks").get_by_role("checkbox")
    with still(probe):
        box.check()
    ticks(probe, 2)
    box.uncheck()
    tab.evaluate("document.activeElement.blur()")
    seen = probe.count
    ticks(probe, 2)

    text = region(tab, "ticks").inner_text()
    assert int(re.search(r"\d+", text)[0]) > seen, text  # type: ignore[index]
    expect(region(tab, "folds")).to_contain_text(re.compile(r"folds ([2-9]|\d\d)"))


def test_a_selection_is_kept(tab: Tab, probe: site.Probe) -> None:
    chosen = tab.evaluate(
        """() => {
            getSelection().selectAllChildren(document.querySelector("[data-pgjobs-region=plain] p"));
            return String(getSelection());
        }"""
    )
    ticks(probe, 3)

    assert tab.evaluate("String(getSelection())") == chosen != ""


def test_a_table_that_was_scrolled_stays_where_it_is(tab: Tab, probe: site.Probe) -> None:
    tab.evaluate("document.querySelector('.pgjobs-scroll').scrollTo(400, 0)")
    before = probe.count
    ticks(probe, 3)

    wait_until(lambda: int(re.search(r"\d+", region(tab, "wide").inner_text())[0]) > before)  # type: ignore[index]
    assert tab.evaluate("document.querySelector('.pgjobs-scroll').scrollLeft") == 400


def test_a_part_that_comes_later_takes_its_place(tab: Tab, probe: site.Probe) -> None:
    probe.names = ["plain", "late", "links"]
    expect(region(tab, "late")).to_contain_text("late")
    order = tab.locator("[data-pgjobs-region]").evaluate_all(
        "all => all.map((each) => each.dataset.pgjobsRegion)"
    )

    assert order.index("late") == order.index("plain") + 1
    expect(region(tab, "ticks")).to_be_empty()


def test_a_hidden_tab_asks_nothing_and_a_shown_one_at_once(tab: Tab, probe: site.Probe) -> None:
    ticks(probe, 1)
    hide(tab, True)
    other = tab.context.new_page()
    other.wait_for_timeout(700)
    asked = probe.count
    other.wait_for_timeout(1000)
    assert probe.count == asked

    hide(tab, False)
    wait_until(lambda: probe.count > asked, 10, "a tick")


def hide(tab: Tab, hidden: bool) -> None:
    """A headless tab never hides by itself; this is what the browser would tell the page."""
    tab.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_server_in_trouble_makes_the_page_say_its_age(tab: Tab, probe: site.Probe) -> None:
    tab.expect_complaint("status of 500")
    ticks(probe, 1)
    probe.answer = "500"
    expect(status(tab)).to_contain_text(re.compile(r"Data is \d+ s old; retrying"))
    expect(tab.locator("[data-pgjobs-live]")).to_have_class("pgjobs-late")
    asked = probe.count
    tab.wait_for_timeout(2000)
    assert probe.count - asked <= 3, "the pauses must grow"

    probe.answer = "page"
    tab.keyboard.press("r")
    expect(status(tab)).to_contain_text("Live")
    expect(tab.locator("[data-pgjobs-live]")).not_to_have_class("pgjobs-late")


@pytest.mark.parametrize(
    ("answer", "told"),
    [("login", "Session ended"), ("403", "The server refuses this page (answer 403)")],
)
def test_an_answer_that_will_not_change_ends_the_refresh(
    answer: str, told: str, tab: Tab, probe: site.Probe
) -> None:
    tab.expect_complaint("status of 403")
    probe.answer = answer
    expect(status(tab)).to_contain_text(told)
    asked = probe.count
    tab.wait_for_timeout(1000)

    assert probe.count == asked
    assert status(tab).get_by_role("link", name="Sign in").count() == (answer == "login")


def test_a_state_that_is_final_ends_the_refresh(tab: Tab, probe: site.Probe) -> None:
    probe.interval = 0
    expect(status(tab)).to_contain_text("Complete; no further updates")
    asked = probe.count
    tab.wait_for_timeout(800)

    assert probe.count == asked


def test_a_pause_is_kept_over_a_reload(tab: Tab, probe: site.Probe) -> None:
    tab.get_by_role("button", name="Pause").click()
    expect(status(tab)).to_contain_text(re.compile(r"Paused; data is \d+ s old"))
    tab.reload()
    asked = probe.count
    expect(tab.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    tab.wait_for_timeout(1000)
    assert probe.count == asked

    tab.keyboard.press("p")
    ticks(probe, 2)
    expect(status(tab)).to_contain_text("Live")


def test_ages_are_shown_but_not_announced(tab: Tab, probe: site.Probe) -> None:
    """A screen reader hears that the refresh is paused, not each second of it."""
    tab.keyboard.press("p")
    expect(status(tab).locator("span[aria-hidden=true]")).to_have_text(re.compile(r"[1-9] s"))


def test_keys_move_through_rows_and_pages(tab: Tab, probe: site.Probe) -> None:
    for key in ("j", "j", "x"):
        tab.keyboard.press(key)
    expect(tab.get_by_role("link", name="row 2")).to_be_focused()
    expect(tab.get_by_label("row 2", exact=True).first).to_be_checked()
    tab.keyboard.press("k")
    expect(tab.get_by_role("link", name="row 1")).to_be_focused()
    tab.keyboard.press("/")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    tab.keyboard.type("gj?")
    expect(tab.get_by_role("searchbox")).to_have_value("gj?")
    tab.evaluate("document.activeElement.blur()")
    for key in ("g", "j"):
        tab.keyboard.press(key)
    tab.wait_for_url("**/admin/pgjobs/job/")


def test_the_list_of_keys_opens_and_they_can_be_turned_off(tab: Tab, probe: site.Probe) -> None:
    tab.keyboard.press("?")
    dialog = tab.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_contain_text("refresh")
    expect(dialog).to_contain_text("Jobs")
    dialog.get_by_role("checkbox").uncheck()
    dialog.get_by_role("button", name="Close").click()
    tab.reload()
    tab.keyboard.press("?")
    expect(tab.get_by_role("dialog")).to_have_count(0)
    tab.get_by_role("button", name="Shortcuts").click()
    expect(dialog).to_be_visible()


def test_a_button_copies_what_it_names(tab: Tab, probe: site.Probe) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.get_by_role("button", name="Copy").click()
    expect(tab.get_by_role("button", name="Copied")).to_be_visible()

    assert tab.evaluate("navigator.clipboard.readText()") == "7"


def test_without_script_nothing_is_offered_that_needs_it(
    probe: site.Probe, web: str, tabs: Callable[..., Tab]
) -> None:
    tab = tabs(web, java_script_enabled=False)
    tab.open("/probe/")

    assert not tab.get_by_role("button", name="Pause").is_visible()
    assert not tab.get_by_role("button", name="Copy").is_visible()
    expect(region(tab, "plain")).to_contain_text("plain 0")
