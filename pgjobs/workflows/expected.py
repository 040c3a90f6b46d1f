"""What a person saw of an execution before they asked for something, and whether it still stands so."""

from __future__ import annotations

from collections.abc import Mapping

Seen = tuple[str, int]
"""Status and number of turns (``attempt_count``) as they were shown."""

Expected = Mapping[int, Seen]
"""By id. What is not in it is taken as it stands."""


def difference(seen: Seen | None, status: str, attempt_count: int, owner: str | None = None) -> str:
    """How an execution stands now when it is not what was seen; empty when it is, or when nothing was said."""
    if seen is None or (str(seen[0]), int(seen[1])) == (str(status), attempt_count):
        return ""
    holder = f", {owner}" if owner else ""
    return (
        f"was {seen[0]} (turn {seen[1]}) when you looked; it is now {status} (turn {attempt_count}{holder}). "
        f"Nothing was done; look at it again"
    )
