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
    """Scenario 13, by keys alone: the first decides; the second's page is stale; the other question runs out."""
    first = workflows.ask.start(question="Post November?")
    late = workflows.ask.start(question="Refund 1,200.00?", seconds=4)
    spawn_workers()
    asked = wait_until(lambda: Wait.objects.filter(execution=first, resolved_at__isnull=True).first())
    ann, ben = tab_of("ann", DECIDER), tab_of("ben", DECIDER)
    for tab in (ann, ben):
        tab.open(listed("execution"))
        tab.press("g", "a", to="wait/$")
        tab.reach(tab.get_by_role("link", name="Post November?"))
        tab.press("Enter", to="change")
    ben.reach(ben.get_by_role("button", name="Reject"))
    ben.press("Enter")
    ben.sees(re.compile("Nothing was decided.*Say why you reject"))
    ben.reach(ben.get_by_label("Reason"))
    ben.keyboard.type("wrong period")  # from here on the form stays as it is
    ann.reach(ann.get_by_label("Reason"))
    ann.keyboard.type("read it")
    ann.press("Enter")
    assert Wait.objects.get(pk=asked.pk).resolved_at is None, "Enter in the field decides nothing"
    ann.reach(ann.get_by_role("button", name="Approve"))
    ann.press("Enter")
    ann.sees(re.compile("approved by ann"))

    ben.reach(ben.get_by_role("button", name="Reject"))
    ben.press("Enter")

    ben.sees(re.compile("Nothing was decided: .*approved.*ann"))
    wait_until(lambda: Execution.objects.get(pk=first.pk).status == "succeeded")
    assert Execution.objects.get(pk=first.pk).output == {"approved": True, "by": "ann", "reason": "read it"}
    wait_until(lambda: Execution.objects.get(pk=late.pk).status == "succeeded")
    assert Execution.objects.get(pk=late.pk).output["approved"] is False
    ben.open(page_of(Wait.objects.get(execution=late, kind="approval")))
    assert ben.get_by_role("button", name="Approve").count() == 0
    expect(ben.locator('[data-pgjobs-region="decision"]')).to_contain_text(
        re.compile("time|nobody", re.IGNORECASE)
    )
