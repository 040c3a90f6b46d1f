"""How far the lab is, against the time it foresaw."""

import shutil
import time
from typing import TextIO

BAR = 24
REDRAW_SECONDS = 0.2


class Progress:
    """A bar on a terminal, a line per step elsewhere."""

    def __init__(self, out: TextIO, total_seconds: float) -> None:
        self._out = out
        self._live = out.isatty()
        self._total = total_seconds
        self._before = 0.0
        """Foreseen seconds of the steps that are over."""
        self._step_seconds = 0.0
        self._step = ""
        self._began = self._step_began = time.monotonic()
        self._drawn_at = 0.0

    def step(self, text: str, seconds: float) -> None:
        """A step begins; the one before is over. ``seconds`` is what it should take."""
        self._before += self._step_seconds
        self._step_seconds, self._step = seconds, text
        self._step_began = time.monotonic()
        if not self._live:
            self._out.write(f"{self.elapsed:6.1f} s  {self._fraction():4.0%}  {text}\n")
            self._out.flush()
        self.tick(force=True)

    def tick(self, *, force: bool = False) -> None:
        """Called while waiting."""
        now = time.monotonic()
        if self._live and (force or now - self._drawn_at >= REDRAW_SECONDS):
            self._drawn_at = now
            filled = round(BAR * self._fraction())
            bar = "#" * filled + "." * (BAR - filled)
            line = f"[{bar}] {self._fraction():4.0%}  {self.elapsed:4.0f} s  {self._step}"
            self._out.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
            self._out.flush()

    def end(self) -> None:
        """Leave the line, so that other output starts on its own."""
        if self._live:
            self._out.write("\r\x1b[K")
        self._out.flush()

    def _fraction(self) -> float:
        within = min(time.monotonic() - self._step_began, self._step_seconds)
        return min((self._before + within) / self._total, 1.0) if self._total else 1.0

    @property
    def elapsed(self) -> float:
        """Seconds since the lab began."""
        return time.monotonic() - self._began
