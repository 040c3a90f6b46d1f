"""``python -m example_project.lab.screenshot REPORT PNG``: a picture of a report, by a headless Chromium."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from example_project.demo.crew import DemoError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = "900,2150"
SECONDS = 60


def browser() -> str:
    """The program to use. Raises DemoError when there is none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise DemoError(
            f"No browser found; looked for {', '.join(PROGRAMS)}. On Debian: apt-get install chromium"
        )
    return program


def take(page: Path, picture: Path) -> None:
    """The upper part of ``page``, in its light colours. Raises DemoError when the browser does not do it."""
    program = browser()
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        command = [
            program,
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            f"--user-data-dir={profile}",
            f"--window-size={SIZE}",
            f"--screenshot={picture.resolve()}",
            *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
            page.resolve().as_uri(),
        ]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if not picture.is_file():
        raise DemoError(f"{program} made no picture (exit code {ended.returncode}): {ended.stderr[-1000:]}")


if __name__ == "__main__":
    take(*map(Path, sys.argv[1:3]))
