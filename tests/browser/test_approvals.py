"""Approvals in the browser: two people at one question, a deadline, and a decision with the keyboard alone."""

import re

import pytest

from pgjobs.models import Execution, Wait
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed, page_of
from tests.jobsapp import workflows
from tests.support.waiting import wait_until
from tests.support.workers import Spawner

DECIDER = ("view_wait", "view_execution", "decide_wait")


@pytest.mark.workers
def test_two_deciders_at_one_question_and_a_deadline(tab_of: TabOf, spawn_workers: Spawner) -> None:
    """Scenario 13. The first decides by keys alone; the second's page is stale; the other question runs out."""
    first = workflows.ask.start(question="Post November?")
    late = workflows.ask.start(question="Refund 1,200.00?", seconds=4)
    spawn_workers()
    asked = wait_until(lambda: Wait.objects.filter(execution=first, resolved_at__isnull=True).first())
    ann, ben = tab_of("ann", DECIDER), tab_of("ben", DECIDER)
    ben.open(page_of(asked))
    ben.get_by_label("Reason").fill("wrong period")  # from here on the form stays as it is
    ann.open(listed("wait"))
    ann.get_by_role("link", name="Post November?").press("Enter")
    ann.get_by_label("Reason").press_sequentially("read it")
    tab_to(ann, "Approve")
    ann.keyboard.press("Enter")
    ann.sees(re.compile("approved by ann"))

    ben.get_by_role("button", name="Reject").click()

    ben.sees(re.compile("Nothing was decided: .*ann"))
    wait_until(lambda: Execution.objects.get(pk=first.pk).status == "succeeded")
    assert Execution.objects.get(pk=first.pk).output == {"approved": True, "by": "ann", "reason": "read it"}
    wait_until(lambda: Execution.objects.get(pk=late.pk).status == "succeeded")
    assert Execution.objects.get(pk=late.pk).output["approved"] is False
    overdue = Wait.objects.get(execution=late, kind="approval")
    ben.open(page_of(overdue))
    assert ben.get_by_role("button", name="Approve").count() == 0
    expect(ben.locator("#content")).to_contain_text(re.compile("time|nobody", re.IGNORECASE))


def tab_to(tab: object, name: str) -> None:
    """Presses Tab until the button of that name has the focus."""
    button = tab.get_by_role("button", name=name, exact=True)  # type: ignore[attr-defined]
    for _ in range(60):
        if button.evaluate("each => each === document.activeElement"):
            return
        tab.keyboard.press("Tab")  # type: ignore[attr-defined]
    raise AssertionError(f"{name} is not reached by the Tab key.")
