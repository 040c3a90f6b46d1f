"""One person's browser: a context, its page, and what its console complained of."""

from __future__ import annotations

import re
from typing import Any

from tests.browser.chromium import Chromium, Remote, expect

# Live pages tick faster than they say. Runs before the page's own script.
PACE = """document.addEventListener("DOMContentLoaded", () => {
  for (const each of document.querySelectorAll("[data-pgjobs-live]"))
    if (Number(each.dataset.interval)) each.dataset.interval = "%s";
});"""

FOCUS_SHOWS = """(each) => {
  const style = getComputedStyle(each);
  return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
}"""


class Tab:
    """A page in a context of its own. Attributes it lacks are those of the page."""

    def __init__(
        self,
        chromium: Chromium,
        address: str,
        cookies: list[dict[str, str]],
        options: dict[str, Any],
        pace: float,
    ) -> None:
        self._chromium = chromium
        self._complaints: list[str] = []
        self._expected: list[re.Pattern[str]] = []
        self.requests: list[str] = []
        """Addresses asked for, in order."""
        self.address = address
        self.context: Remote = chromium.browser.new_context(base_url=address, **options)
        self.context.set_default_timeout(30_000)
        self.context.add_cookies(cookies)
        self.context.add_init_script(PACE % pace)
        self.page: Remote = self.context.new_page()
        self.page.on("console", lambda message: self._on_console(message))
        self.page.on("pageerror", lambda error: self._complaints.append(f"uncaught: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def open(self, path: str) -> None:
        """Goes there, and wants an answer of 200."""
        answer = self.page.goto(path)
        assert answer.status == 200, (path, answer.status)

    def sees(self, text: str | re.Pattern[str], timeout: float = 20.0) -> None:
        """Waits until the text is on the page."""
        expect(self.page.locator("body")).to_contain_text(text, timeout=1000 * timeout)

    def reach(self, element: Any) -> None:
        """Goes to an element with the Tab key alone, and sees that the focus shows there."""
        self.page.keyboard.press("Tab")
        if self.page.evaluate("document.activeElement.matches('.skip-to-content-link')"):
            self.page.keyboard.press("Enter")
        for _ in range(150):
            if element.evaluate("each => each === document.activeElement"):
                assert element.evaluate(FOCUS_SHOWS), "the focus does not show"
                return
            self.page.keyboard.press("Tab")
        raise AssertionError("not reached by the Tab key")

    def press(self, *keys: str, to: str = "") -> None:
        """Presses one key after the other; they lead to an address with ``to`` in it."""
        for key in keys:
            self.page.keyboard.press(key)
        self.page.wait_for_url(re.compile(to))
        self.page.wait_for_load_state("domcontentloaded")

    def expect_complaint(self, pattern: str) -> None:
        """What the console may say in this test, as a regular expression."""
        self._expected.append(re.compile(pattern))

    def close(self) -> list[str]:
        """Ends the context. Returns the complaints that were not expected."""
        if not self.page.is_closed():
            self.page.evaluate("0")  # lets the last messages arrive
        self.context.close()
        return [each for each in self._complaints if not any(known.search(each) for known in self._expected)]

    def _on_console(self, message: Any) -> None:
        source = message.location.get("url", "")
        # A site without an icon is none of our business.
        if message.type in ("error", "warning") and not source.endswith("/favicon.ico"):
            self._complaints.append(f"{message.type}: {message.text} ({source})")
