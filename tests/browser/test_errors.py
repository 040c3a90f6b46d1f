"""Failures by cause in the browser."""

from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed
from tests.faces.rows import make_job

CAUSES = {"a" * 40: ("ChargeDeclined", 12), "b" * 40: ("TimeoutError", 5), "c" * 40: ("KeyError", 1)}


def test_many_dead_jobs_are_few_causes(tab_of: TabOf) -> None:
    """Scenario 5: one row for a cause, what its jobs share, the project's frame first, and a text for the ticket."""
    for fingerprint, (error, count) in CAUSES.items():
        for n in range(count):
            message = f"{error}: card {n} refused"
            trace = f'Traceback:\n  File "/srv/shop/pay.py", line 7, in charge\n    raise\n{message}\n'
            make_job(
                "dead",
                queue="billing",
                payload={"n": n},
                error_class=error,
                fingerprint=fingerprint,
                last_error=message,
                errors=[
                    {"attempt": 1, "kind": "error", "message": message, "traceback": trace, "worker": "w-7"}
                ],
            )
    tab = tab_of("viewer")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.open(listed("errorgroup"))
    expect(tab.locator("[data-pgjobs-region=errors]").get_by_role("row")).to_have_count(1 + len(CAUSES))
    tab.get_by_role("link", name="ChargeDeclined").click()

    expect(tab.locator('[data-pgjobs-region="shared"]')).to_contain_text("billing 12")
    expect(tab.locator(".pgjobs-frames li").first).to_contain_text("pay.py:7")
    tab.get_by_role("button", name="copy for ticket").click()
    expect(tab.get_by_role("button", name="Copied")).to_be_visible()
    assert "ChargeDeclined" in tab.evaluate("navigator.clipboard.readText()")
