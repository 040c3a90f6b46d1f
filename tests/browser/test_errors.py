"""Failures by cause in the browser."""

import re
from collections.abc import Iterator

from django.db.models.functions import Now

from pgjobs.models import Job
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed

CAUSES = {"a" * 40: ("ChargeDeclined", 1_200), "b" * 40: ("TimeoutError", 799), "c" * 40: ("KeyError", 1)}


def dead_jobs() -> Iterator[Job]:
    """2,000 jobs, each with a number of its own in its error."""
    for fingerprint, (error, count) in CAUSES.items():
        for n in range(count):
            message = f"{error}: card {n} refused"
            trace = f'Traceback:\n  File "/srv/shop/pay.py", line 7, in charge\n    raise\n{message}\n'
            entry = {"attempt": 1, "kind": "error", "message": message, "traceback": trace, "worker": "w-7"}
            yield Job(
                job_type="jobsapp.ok",
                queue="billing",
                status="dead",
                payload={"n": n},
                attempt_count=1,
                completed_at=Now(),
                error_class=error,
                fingerprint=fingerprint,
                last_error=message,
                errors=[entry],
            )


def test_many_dead_jobs_are_few_causes(tab_of: TabOf) -> None:
    """Scenario 5: one row for a cause, what its jobs share, the project's frame first, and a text for the ticket."""
    Job.objects.bulk_create(dead_jobs())
    tab = tab_of("viewer")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.open(listed("errorgroup"))
    expect(tab.locator("[data-pgjobs-region=errors]").get_by_role("row")).to_have_count(1 + len(CAUSES))
    for error, count in (("ChargeDeclined", "1,000+"), ("TimeoutError", "799"), ("KeyError", "1")):
        expect(tab.get_by_role("row", name=re.compile(error))).to_contain_text(count)
    tab.get_by_role("link", name="ChargeDeclined").click()

    expect(tab.locator('[data-pgjobs-region="shared"]')).to_contain_text("billing 200")
    expect(tab.locator(".pgjobs-frames li").first).to_contain_text("pay.py:7")
    tab.get_by_role("button", name="copy for ticket").click()
    expect(tab.get_by_role("button", name="Copied")).to_be_visible()
    assert "ChargeDeclined" in tab.evaluate("navigator.clipboard.readText()")
