"""What a person saw of an execution before they asked for something, and whether it still stands so."""

from __future__ import annotations

Seen = tuple[str, int]
"""Status and number of turns (``attempt_count``) as they were shown."""


def difference(seen: Seen | None, status: str, attempt_count: int, owner: str | None = None) -> str:
    """How an execution stands now when it is not what was seen; empty when it is, or when nothing was said."""
    if seen is None or (str(seen[0]), int(seen[1])) == (str(status), attempt_count):
        return ""
    saw = str(seen[0]) if seen[0] != status else f"{status} (turn {seen[1]})"
    holder = f", {owner}" if owner else ""
    return f"it was {saw} when you looked; it is now {status} (turn {attempt_count}{holder})"
