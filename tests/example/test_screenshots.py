"""The command that takes pictures: it asks for what it needs before it starts anything."""

from importlib.util import find_spec

import pytest
from django.core.management import CommandError, call_command

from example_project.screenshots.camera import LARGEST_BYTES, SCHEMES
from tests.house.documents import DOCS


def test_without_a_browser_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    expected = "No browser found" if find_spec("playwright") else "Playwright is not installed"

    with pytest.raises(CommandError, match=expected):
        call_command("screenshots")


def test_each_picture_is_there_in_both_schemes_and_small() -> None:
    pictures = list((DOCS / "screenshots").glob("*.png"))
    names = {
        scheme: {picture.stem.removesuffix(f"-{scheme}") for picture in pictures if scheme in picture.stem}
        for scheme in SCHEMES
    }

    assert names["light"] == names["dark"] >= {"overview", "job", "workflow"}
    assert [p.name for p in pictures if p.stat().st_size > LARGEST_BYTES] == []
