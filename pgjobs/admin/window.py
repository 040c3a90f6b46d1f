"""The stretch of a list that is looked through when no index serves what is asked, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.db import connections
from django.db.models import Model
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgjobs.conf import get_settings
from pgjobs.connections import rows

WINDOW = 200_000
"""How many ids are looked through at a time."""
PARAMETER = "before_id"
"""Moves the stretch: the newest id that it no longer holds."""

LARGEST_ID = 2**63 - 1
_LONGEST_ID = len(str(LARGEST_ID))


def as_id(text: str) -> int | None:
    """The id that somebody typed or sent; None for what no row can have. Any text may come, thousands of digits too."""
    if not text.isdecimal() or len(text.lstrip("0")) > _LONGEST_ID:
        return None
    number = int(text[-_LONGEST_ID:])
    return number if 0 < number <= LARGEST_ID else None


_STRETCH = """
SELECT top.id, (SELECT t.created_at FROM {table} AS t WHERE t.id > top.id - %(window)s ORDER BY t.id LIMIT 1)
FROM (SELECT COALESCE(%(before)s::bigint - 1, (SELECT max(id) FROM {table})) AS id) AS top"""


@dataclass(frozen=True, slots=True)
class Window:
    """Ids above ``floor`` and below ``ceiling`` (None: all newer ones)."""

    floor: int
    ceiling: int | None
    reaches_back_to: datetime | None

    @property
    def is_partial(self) -> bool:
        """Whether there may be rows outside."""
        return self.floor > 0 or self.ceiling is not None

    def condition(self) -> dict[str, int]:
        """The ids as a filter."""
        bounds = {"pk__gt": self.floor}
        return bounds if self.ceiling is None else bounds | {"pk__lt": self.ceiling}

    def sentence(self, noun: str, params: Mapping[str, Any]) -> SafeString:
        """What was looked through, and a link to what lies before."""
        newest = (
            f"the newest {WINDOW:,} {noun}" if self.ceiling is None else f"{noun} below id {self.ceiling:,}"
        )
        back = (
            f", back to {self.reaches_back_to.astimezone(UTC):%d %b %Y %H:%M:%S} UTC"
            if self.reaches_back_to
            else ""
        )
        told = format_html("Looked through {} only: ids above {}{}.", newest, f"{max(self.floor, 0):,}", back)
        if self.floor <= 0:
            return told
        kept = [(name, value) for name, value in params.items() if name not in (PARAMETER, "p")]
        address = urlencode([*kept, (PARAMETER, str(self.floor + 1))], doseq=True)
        return format_html('{} <a href="?{}">Search the {} before that</a>', told, address, f"{WINDOW:,}")


def window(model: type[Model], before: str = "") -> Window:
    """The newest stretch of ``model``'s ids, or the one that ends before the id ``before``."""
    ceiling = as_id(before)
    sql = _STRETCH.format(table=connections[get_settings().database].ops.quote_name(model._meta.db_table))
    ((newest, first),) = rows(get_settings().database, sql, {"before": ceiling, "window": WINDOW})
    floor = max(int(newest or 0) - WINDOW, 0)
    return Window(floor, ceiling, first if floor else None)
