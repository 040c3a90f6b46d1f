"""Editing a payload in the browser: the secret stays hidden and right, the number exact, and everything is recorded."""

import re

from pgjobs.models import Job, OperatorAction
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed, page_of
from tests.faces.rows import make_job

SECRET = "hush-4711-hush"
EXACT = 2**53 + 1


def test_an_edited_payload_keeps_what_was_hidden(tab_of: TabOf) -> None:
    """Scenario 9."""
    payload = {"api_key": SECRET, "order": EXACT, "amount": "1.00"}
    dead = make_job("dead", job_type="jobsapp.echo", payload=payload)
    clerk = tab_of("clerk", ("view_job", "retry_job", "edit_payload"))
    clerk.open(page_of(dead))
    clerk.sees("«redacted»")
    assert SECRET not in clerk.content()
    clerk.get_by_role("link", name="Retry with options…").click()
    clerk.get_by_text("Edit the payload").click()
    area = clerk.get_by_label("Payload")
    assert SECRET not in clerk.content()
    text = area.input_value()
    assert str(EXACT) in text and "«redacted»" in text

    area.fill(text[:-1] + ",")
    clerk.get_by_role("button", name="Retry edited").click()
    clerk.sees(re.compile(r"line \d+"))
    assert clerk.get_by_label("Payload").input_value() == text[:-1] + ","
    clerk.get_by_label("Payload").fill(text.replace("1.00", "10.00"))
    clerk.get_by_label("Reason").fill("wrong amount")
    clerk.get_by_role("button", name="Retry edited").click()

    new = Job.objects.exclude(pk=dead.pk).get()
    assert new.payload == {"api_key": SECRET, "order": EXACT, "amount": "10.00"}
    assert (new.copied_from, Job.objects.get(pk=dead.pk).payload) == (dead.pk, payload)
    assert SECRET not in clerk.content()
    clerk.open(page_of(new))
    expect(clerk.locator('[data-pgjobs-region="relations"]')).to_contain_text(str(dead.pk))
    clerk.open(page_of(dead))
    expect(clerk.locator("#content")).to_contain_text(str(new.pk))

    for path in (listed("job"), listed("deadjob"), listed("operatoraction"), f"{page_of(dead)}../options/"):
        assert SECRET not in clerk.request.get(path).text(), path

    boss = tab_of("boss")
    boss.open(page_of(new))
    boss.get_by_role("button", name="Reveal redacted").click()
    boss.sees(SECRET)
    verbs = OperatorAction.objects.order_by("pk").values_list("verb", "actor")
    assert list(verbs) == [("edit_copy", "clerk"), ("reveal", "boss")]
    assert SECRET not in str(list(OperatorAction.objects.values_list("details", flat=True)))
