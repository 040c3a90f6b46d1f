"""What rows hold, as text for a page. Everything from a row is hostile until escaped."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

SHOWN_CHARACTERS = 64_000
"""Longer texts are cut on the page; the row keeps them whole."""

_ENTRY = """<section class="pgjobs-error"><h3>{}</h3><p>{}</p>{}</section>"""


def as_json(value: Any) -> SafeString:
    """A stored value, indented."""
    return preformatted(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def preformatted(text: str) -> SafeString:
    """A text with its line breaks, cut if it is very long."""
    rest = len(text) - SHOWN_CHARACTERS
    more = f"\n[{rest:,} more characters are in the row]" if rest > 0 else ""
    return format_html('<pre class="pgjobs-text">{}{}</pre>', text[:SHOWN_CHARACTERS], more)


def error_history(errors: Any) -> SafeString | str:
    """One section per ended attempt, the latest first. Other services may write rows: any shape is shown."""
    if not isinstance(errors, list):
        return as_json(errors)
    if not errors:
        return "none"
    return format_html_join("", "{}", ((_entry(each),) for each in reversed(errors)))


def _entry(entry: Any) -> SafeString:
    if not isinstance(entry, dict):
        return as_json(entry)
    title = f"Attempt {entry.get('attempt', '?')}: {entry.get('kind', 'error')}"
    message = ": ".join(str(entry[key]) for key in ("type", "message") if entry.get(key))
    facts = {"worker": "by", "at": "at", "heartbeat_at": "last heartbeat"}
    where = ", ".join(f"{word} {entry[key]}" for key, word in facts.items() if entry.get(key))
    text = "\n\n".join(filter(None, [message, str(entry.get("traceback") or "")]))
    return format_html(_ENTRY, title, where, preformatted(text) if text else "")
