"""Spans of time in words. The instants on both sides come from the database."""

from __future__ import annotations

from datetime import timedelta

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def in_words(span: timedelta | None) -> str:
    """The two largest units, "3 min 20 s"; a span below zero without its sign; "-" for None."""
    if span is None:
        return "-"
    left = int(abs(span.total_seconds()))
    parts: list[str] = []
    for seconds, unit in _UNITS:
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or "0 s"


def lease_in_words(left: timedelta | None) -> str:
    """What is left of a lease, or by how much it is overdue."""
    if left is None:
        return "-"
    return f"overdue by {in_words(left)}" if left < timedelta() else f"{in_words(left)} left"
