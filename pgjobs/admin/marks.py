"""Small pieces of markup that several pages share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

COUNTED = 10_000
"""The highest exact count of a page."""


def state(name: str, words: str = "") -> SafeString:
    """A state as text, with a class for its colour. Any text may stand in a row's status."""
    known = name if name.replace("-", "").isalpha() else "unknown"
    return format_html('<span class="pgjobs-state pgjobs-state-{}">{}</span>', known, words or name)


def count(number: int, limit: int = COUNTED) -> str:
    """ "312", or "10,000+" when more were found than are counted."""
    return f"{limit:,}+" if number > limit else f"{number:,}"


def link(url: str, text: Any) -> SafeString:
    """A link."""
    return format_html('<a href="{}">{}</a>', url, text)


def copy(text: str, label: str = "copy") -> SafeString:
    """A button that copies ``text``."""
    return format_html(
        '<button type="button" class="pgjobs-copy" data-pgjobs-copy="{}">{}</button>', text, label
    )


def facts(pairs: Iterable[tuple[str, Any]]) -> SafeString:
    """Names and values, those without a value left out."""
    shown = ((name, value) for name, value in pairs if value not in (None, "", "-"))
    return format_html(
        '<dl class="pgjobs-facts">{}</dl>', format_html_join("", "<dt>{}</dt><dd>{}</dd>", shown)
    )
