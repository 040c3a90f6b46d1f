"""Text for terminals: nothing from a row can steer them, and a watched screen is always given back."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from django.core.management.color import no_style

_ENTER, _LEAVE, _HOME, _REST = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"
_COLOUR_OR_CHARACTER = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)
_END_OF_LINE = "\x1b[K"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

FINE, PROBLEM, CANNOT_TELL = 0, 2, 3
"""Exit codes of commands that look; 1 is wrong usage or an unexpected error."""


def clean(text: object) -> str:
    """On one line, without what a terminal would take for a command."""
    return harmless(" ".join(str(text).split()))


def harmless(text: str) -> str:
    """The same with the blanks that it has."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def is_terminal(stream: Any) -> bool:
    """Whether somebody looks at it."""
    return bool(getattr(stream, "isatty", lambda: False)())


def style_for(command: Any) -> Any:
    """The command's colours, or none where NO_COLOR says so."""
    return no_style() if os.environ.get("NO_COLOR") else command.style


def fitted(text: str, stream: Any) -> str:
    """Cut to the terminal's width; whole where it goes to a file or a pipe."""
    if not is_terminal(stream):
        return text
    width, shown, end = shutil.get_terminal_size().columns, 0, 0
    for part in _COLOUR_OR_CHARACTER.finditer(text):
        shown += not part[0].startswith("\x1b")
        if shown < width:
            end = part.end()
    if shown <= width:
        return text
    return f"{text[:end]}…" + ("\x1b[0m" if "\x1b" in text else "")


def columns(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """Lines of a table; columns named in ``left`` are aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def watch(frame: Callable[[], list[str]], seconds: float, stream: Any) -> NoReturn:
    """Show ``frame`` every ``seconds`` until a signal ends it. On a terminal in place, else one after the other."""
    with ended_by_signals():
        if not is_terminal(stream):
            while True:
                stream.write("\n".join([*frame(), "--", ""]), ending="")
                stream.flush()
                time.sleep(seconds)
        try:
            stream.write(_ENTER, ending="")
            while True:
                lines = "".join(f"{line}{_END_OF_LINE}\n" for line in frame())
                stream.write(f"{_HOME}{lines}{_REST}", ending="")
                stream.flush()
                time.sleep(seconds)
        finally:
            stream.write(_LEAVE, ending="")
            stream.flush()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A signal ends the block: SIGINT as what it is meant to be, others with their own exit code."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0 if number == signal.SIGINT else 128 + number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
