"""Instants and spans of time in words. The instants on both sides come from the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.utils.html import format_html
from django.utils.safestring import SafeString

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


def seconds_in_words(seconds: float | None) -> str:
    """A duration as people say it: "40 ms", "2.5 s", "3 min 20 s"; "-" for None."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.3g} s" if seconds < 60 else in_words(timedelta(seconds=seconds))


def since(at: datetime, clock: datetime) -> str:
    """How ``at`` lies to ``clock``: "3 min ago", "in 20 s"."""
    span = clock - at
    return f"{in_words(span)} ago" if span >= timedelta() else f"in {in_words(span)}"


def moment(at: datetime | None, clock: datetime) -> SafeString | str:
    """Both at once, "01:47:12 (13 min ago)" in UTC, with the date when it is another day; "-" for None."""
    if at is None:
        return "-"
    at, clock = at.astimezone(UTC), clock.astimezone(UTC)
    shown = f"{at:%H:%M:%S}" if at.date() == clock.date() else f"{at:%Y-%m-%d %H:%M:%S}"
    stamp = at.isoformat(timespec="milliseconds")
    return format_html('<time datetime="{}">{} ({})</time>', stamp, shown, since(at, clock))
