"""A stored value as a tree of nested details. Everything in it is hostile until escaped; integers are exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString

from pgjobs.admin.marks import copy
from pgjobs.admin.pages import trusted

SHOWN_CHARACTERS = 64_000
"""Text of a value that a page shows; the rest is in the row."""
OPEN_LEVELS = 2
_DEEPEST = 60
_MOST_BUTTONS = 200


class _Left:
    """What may still be shown."""

    def __init__(self) -> None:
        self.characters = SHOWN_CHARACTERS
        self.buttons = _MOST_BUTTONS
        self.cut = False


def tree(value: Any) -> SafeString:
    """``value``, two levels of it open, cut when it is very long."""
    left = _Left()
    body = "".join(_node(value, 0, left))
    more = '<p class="pgjobs-cut">Cut here: the row holds more.</p>' if left.cut else ""
    return trusted(f'<div class="pgjobs-tree">{body}{more}</div>')


def _node(value: Any, depth: int, left: _Left) -> Iterator[str]:
    if not isinstance(value, dict | list) or not value:
        yield _leaf(value, left)
        return
    if depth >= _DEEPEST:
        yield _leaf(json.dumps(value, ensure_ascii=False, default=str), left)
        return
    is_open = " open" if depth < OPEN_LEVELS else ""
    size = f"{{{len(value)}}}" if isinstance(value, dict) else f"[{len(value)}]"
    yield f"<details{is_open}><summary>{size}</summary><ul>"
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in pairs:
        if left.characters <= 0:
            left.cut = True
            break
        left.characters -= len(str(name)) + 4
        yield f'<li><span class="pgjobs-key">{escape(name)}</span> '
        yield from _node(inner, depth + 1, left)
        yield "</li>"
    yield "</ul></details>"


def _leaf(value: Any, left: _Left) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    shown = text[: max(left.characters, 80)]
    left.characters -= len(shown)
    left.cut = left.cut or len(shown) < len(text)
    button = ""
    if left.buttons > 0 and len(text) <= 2_000 and value not in ({}, [], None, "", True, False):
        left.buttons -= 1
        button = " " + copy(value if isinstance(value, str) else text)
    return f"<code>{escape(shown)}</code>{button}"
