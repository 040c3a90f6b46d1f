"""Pictures of pages by a headless Chromium, in both colour schemes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from example_project.demo.crew import DemoError
from example_project.lab.screenshot import browser

SCHEMES = ("light", "dark")
WIDTH, HEIGHT = 1280, 860
TALLEST = 1150
LARGEST_BYTES = 200_000
CLOSED_SIDEBAR = "localStorage.setItem('django.admin.navSidebarIsOpen', 'false')"
PHONE = {"width": 390, "height": 844}


@dataclass(frozen=True)
class Shot:
    """One page: the name of its pictures, its path, and what must be on it."""

    name: str
    path: str
    expected: str
    phone: bool = False
    open: str = ""
    """A selector to click first, such as a fold."""


def require() -> None:
    """Raises DemoError when there is no browser or nothing to drive it with; asked before anything is started."""
    if find_spec("playwright") is None:
        raise DemoError('Playwright is not installed. Run: pip install -e ".[test]"')
    browser()


def take(shots: Sequence[Shot], address: str, login: tuple[str, str], folder: Path) -> list[Path]:
    """The pictures of all shots, as <name>-<scheme>.png in ``folder``. Raises DemoError for a page that is not right.

    In a thread of its own: Playwright's event loop and the ORM exclude each other in one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_take, shots, address, login, folder).result()


def _take(shots: Sequence[Shot], address: str, login: tuple[str, str], folder: Path) -> list[Path]:
    from playwright.sync_api import sync_playwright

    made = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--disable-gpu"])
        for scheme in SCHEMES:
            for phone in (False, True):
                size = PHONE if phone else {"width": WIDTH, "height": HEIGHT}
                context = chromium.new_context(color_scheme=scheme, viewport=size, base_url=address)
                context.add_init_script(CLOSED_SIDEBAR)
                page = context.new_page()
                _log_in(page, *login)
                for shot in (each for each in shots if each.phone == phone):
                    made.append(_picture(page, shot, folder / f"{shot.name}-{scheme}.png"))
                context.close()
        chromium.close()
    return made


def _log_in(page: Any, name: str, password: str) -> None:
    page.goto("/admin/login/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/admin/**")


def _picture(page: Any, shot: Shot, picture: Path) -> Path:
    answer = page.goto(shot.path)
    if answer is None or answer.status != 200:
        raise DemoError(f"{shot.path} answered {answer.status if answer else 'nothing'}, not 200.")
    text = page.locator("body").inner_text()
    if shot.expected not in text:
        raise DemoError(f"{shot.path} does not show {shot.expected!r}. It shows:\n{text[:2000]}")
    if shot.open:
        page.locator(shot.open).first.click()
    width, height = page.viewport_size["width"], page.locator("#content").bounding_box()["height"] + 160
    clip = {"x": 0, "y": 0, "width": width, "height": min(max(height, 500), TALLEST)}
    page.screenshot(path=picture, full_page=True, clip=clip)
    size = picture.stat().st_size
    if size > LARGEST_BYTES:
        raise DemoError(f"{picture} has {size:,} bytes; {LARGEST_BYTES:,} are the most. Show less on it.")
    return picture
