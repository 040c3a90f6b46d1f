"""The live table: redrawn in place on a terminal, one line per event everywhere else."""

import shutil
import time
from typing import TextIO

from example_project.demo.questions import BoardRow
from example_project.demo.tables import aligned

REDRAW_SECONDS = 0.25
BAR = 10
COLUMNS = ["document", "state", "pages", "tries", "worker", "lease_left", "heartbeat", "remark"]


class Display:
    """Shows what happens. ``note`` is a line of the story; ``show`` is the state of all documents."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()
        self._live = out.isatty()
        self._drawn_lines = 0
        self._drawn_at = 0.0
        self._states: dict[int, tuple[str, int]] = {}

    @property
    def seconds(self) -> float:
        """Time since the demo began."""
        return time.monotonic() - self._began

    def note(self, text: str) -> None:
        self._erase()
        self._write(f"{self.seconds:5.1f} s  {text}")

    def text(self, text: str = "") -> None:
        self._erase()
        self._write(text)

    def show(self, rows: list[BoardRow], *, last: bool = False) -> None:
        if self._live:
            if last or time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
                self._redraw(rows)
            if last:
                self._drawn_lines = 0
        else:
            self._tell_changes(rows)

    def _redraw(self, rows: list[BoardRow]) -> None:
        width, height = shutil.get_terminal_size()
        room = max(height - 4, 5)
        shown = sorted(rows, key=lambda row: row.finished)[:room] if len(rows) > room else rows
        lines = aligned(COLUMNS, [_cells(row) for row in shown], width=width - 1)
        finished = sum(row.finished for row in rows)
        lines.append(f"{finished} of {len(rows)} documents finished, {self.seconds:.0f} s")
        self._erase()
        self._write("\n".join(lines))
        self._drawn_lines = len(lines)
        self._drawn_at = time.monotonic()

    def _tell_changes(self, rows: list[BoardRow]) -> None:
        for row in rows:
            state = (row.status, row.attempts)
            if self._states.get(row.document, ("pending", 0)) != state:
                self.note("  ".join(part for part in aligned(COLUMNS, [_cells(row)])[1].split("  ") if part))
            self._states[row.document] = state

    def _erase(self) -> None:
        if self._drawn_lines:
            self._out.write(f"\x1b[{self._drawn_lines}F\x1b[J")
            self._drawn_lines = 0

    def _write(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()


def _cells(row: BoardRow) -> list[object]:
    running = row.status == "running"
    return [
        row.title,
        row.status,
        _bar(row),
        row.attempts,
        row.worker or row.completed_by,
        f"{row.lease_left:.1f} s" if running and row.lease_left is not None else "",
        f"{row.heartbeat_age:.1f} s ago" if running and row.heartbeat_age is not None else "",
        _remark(row),
    ]


def _bar(row: BoardRow) -> str:
    if not row.total:
        return ""
    filled = BAR * row.done // row.total
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {row.done}/{row.total}"


def _remark(row: BoardRow) -> str:
    if row.status == "running" and (row.lease_left or 0) < 0:
        return "lease has lapsed"
    if row.status == "pending" and row.crashes:
        return f"its worker died; again in {max(row.due_in, 0):.1f} s, alone"
    if row.status in ("failed", "dead"):
        return row.last_error.partition("\n")[0]
    return f"worker lost {row.crashes}×" if row.crashes else ""
