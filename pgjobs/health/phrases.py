"""Numbers and times in sentences."""

from __future__ import annotations

import datetime as dt


def span(age: dt.timedelta | float) -> str:
    """ "40 s", "3 min 10 s", "2 h 5 min", "3 d 4 h"."""
    seconds = int(age.total_seconds() if isinstance(age, dt.timedelta) else age)
    if seconds < 60:
        return f"{max(seconds, 0)} s"
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return f"{whole} {unit}" + (f" {rest // part} {smaller}" if rest // part else "")
    raise AssertionError("unreachable")


def counted(number: int, limit: int) -> str:
    """The number, or "1,000+" where counting stopped at the limit."""
    return f"{limit:,}+" if number > limit else f"{number:,}"


def many(number: int, noun: str, limit: int | None = None) -> str:
    """ "1 job", "2 jobs", "1,000+ jobs"."""
    text = counted(number, limit) if limit is not None else f"{number:,}"
    return f"{text} {noun}" + ("" if number == 1 else "s")


def at(moment: dt.datetime) -> str:
    """ "01:47:12", in the zone of the moment."""
    return f"{moment:%H:%M:%S}"
