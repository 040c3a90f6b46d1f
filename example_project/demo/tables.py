"""Rows as aligned text."""

from collections.abc import Iterable, Sequence
from typing import Any


def aligned(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, width: int = 0) -> list[str]:
    """One line for the heads and one for each row; lines are cut at ``width`` if that is given."""
    cells = [[_cell(value) for value in row] for row in rows]
    heads = [name.replace("_", " ") for name in columns]
    widths = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    numeric = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(heads))]
    lines = []
    for row in [heads, *cells]:
        parts = [text.rjust(widths[i]) if numeric[i] else text.ljust(widths[i]) for i, text in enumerate(row)]
        lines.append("  ".join(parts).rstrip())
    return [line[:width] for line in lines] if width else lines


def _cell(value: Any) -> str:
    return "" if value is None else " ".join(str(value).split())


def _is_number(text: str) -> bool:
    return text == "" or text.replace(".", "", 1).replace("-", "", 1).isdigit()
