"""Tracebacks with the project's own frames first."""

from __future__ import annotations

import re
import sysconfig
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

SHOWN_CHARACTERS = 64_000
_MOST_FRAMES = 30
_FRAME = re.compile(r'^  File "(?P<path>[^"\n]+)", line (?P<line>\d+), in (?P<name>.+)$')
_LIBRARIES = tuple(
    {path for path in (sysconfig.get_paths().get(name) for name in ("stdlib", "purelib", "platlib")) if path}
)
_MARKS = ("site-packages", "dist-packages", "/lib/python", "<frozen ")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of the way that an exception took."""

    path: str
    line: int
    name: str
    code: str

    @property
    def is_library(self) -> bool:
        """Whether it is not the project's own."""
        installed = self.path.startswith(_LIBRARIES) or any(mark in self.path for mark in _MARKS)
        return installed or "/pgjobs/" in self.path.replace("\\", "/")


def frames(text: str) -> list[Frame]:
    """The frames of a traceback, the innermost last."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        if match := _FRAME.match(line):
            following = lines[number + 1] if number + 1 < len(lines) else ""
            code = following.strip() if following.startswith("    ") else ""
            found.append(Frame(match["path"], int(match["line"]), match["name"], code))
    return found


def shown(text: str) -> SafeString:
    """The project's frames, then the whole text folded."""
    every = frames(text)
    own = [frame for frame in every if not frame.is_library][-_MOST_FRAMES:]
    rest = len(every) - len(own)
    rows = format_html_join(
        "",
        "<li><code>{}:{}</code> in <code>{}</code><br><code>{}</code></li>",
        ((_short(frame.path), frame.line, frame.name, frame.code) for frame in own),
    )
    listed = format_html('<ol class="pgjobs-frames">{}</ol>', rows) if own else ""
    more = f" ({rest} library frames)" if rest > 0 else ""
    cut = len(text) - SHOWN_CHARACTERS
    told = f"\n[{cut:,} more characters are in the row]" if cut > 0 else ""
    return format_html(
        '{}<details><summary>Whole traceback{}</summary><pre class="pgjobs-text">{}{}</pre></details>',
        listed,
        more,
        text[:SHOWN_CHARACTERS],
        told,
    )


def _short(path: str) -> str:
    return "/".join(path.replace("\\", "/").split("/")[-3:])
