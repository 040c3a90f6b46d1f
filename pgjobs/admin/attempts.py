"""The ended attempts of a row for its page. Other services may write rows: any shape is shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from pgjobs.admin import tracebacks
from pgjobs.admin.ages import moment, seconds_in_words
from pgjobs.admin.tree import tree

SHOWN = 50
_WORDS = {
    "lost": "lease expired; the worker went silent",
    "error": "raised",
    "timeout": "ran past its timeout",
    "released": "released by an operator",
}


def of(errors: Any, clock: datetime) -> list[dict[str, Any]]:
    """One row per attempt, the latest first. ``errors`` have no secrets any more."""
    if not isinstance(errors, list):
        errors = [errors]
    return [_row(each, clock) for each in reversed(errors[-SHOWN:])]


def _row(entry: Any, clock: datetime) -> dict[str, Any]:
    if not isinstance(entry, dict):
        return {"number": "?", "kind": "error", "odd": tree(entry)}
    kind, text = str(entry.get("kind", "error")), str(entry.get("traceback") or "")
    seconds = entry.get("seconds")
    return {
        "number": entry.get("attempt", "?"),
        "kind": kind,
        "words": _WORDS.get(kind, kind),
        "worker": entry.get("worker") or "-",
        "at": instant(entry.get("at"), clock),
        "heartbeat": instant(entry.get("heartbeat_at"), clock) if entry.get("heartbeat_at") else "",
        "took": seconds_in_words(seconds) if isinstance(seconds, int | float) else "",
        "message": ": ".join(str(entry[key]) for key in ("type", "message") if entry.get(key)),
        "traceback": tracebacks.shown(text) if text else "",
        "fingerprint": entry.get("fingerprint") or "",
    }


def instant(value: Any, clock: datetime) -> Any:
    """An instant as an entry tells it, in words; as it stands when it is none."""
    try:
        at = parse_datetime(str(value)) if value else None
    except ValueError:
        at = None
    return moment(at, clock) if at and at.tzinfo else value or "-"
