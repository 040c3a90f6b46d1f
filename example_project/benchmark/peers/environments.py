"""A virtual environment for each entrant, made once and kept in a folder for the next run."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from example_project.benchmark.peers.entrant import Entrant

INSTALL_SECONDS = 600
NEWEST_MINOR = 15
COMPLETE = "complete.json"
OURS = ("django-pgjobs", "Django", "psycopg")
VERSIONS = """
import importlib.metadata, json, platform, sys
names = sys.argv[1:]
print(json.dumps({"Python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}))
"""


class EntrantUnavailable(RuntimeError):
    """It cannot be installed here; the text says why."""


@dataclass(frozen=True)
class Environment:
    python: Path
    versions: dict[str, str]

    def __str__(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())


def environment(entrant: Entrant, folder: Path) -> Environment:
    """Where ``entrant`` runs: this process's own environment, or one below ``folder``, made when it is missing.

    Raises EntrantUnavailable when there is no Python for it, or pip fails.
    """
    if not entrant.packages:
        return Environment(
            Path(sys.executable), _versions(Path(sys.executable), ("django-pgjobs", "psycopg"))
        )
    home = folder / entrant.environment
    python = home / "bin" / "python"
    stamp = home / COMPLETE
    if not (stamp.exists() and json.loads(stamp.read_text()) == list(entrant.packages)):
        shutil.rmtree(home, ignore_errors=True)
        _run(entrant, [str(_base_python(entrant)), "-m", "venv", str(home)])
        _run(
            entrant,
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *entrant.packages,
            ],
        )
        stamp.write_text(json.dumps(list(entrant.packages)))
    return Environment(python, _versions(python, entrant.distributions))


def _base_python(entrant: Entrant) -> Path:
    """This process's Python when it is new enough, else the newest on the path."""
    if sys.version_info[:2] >= entrant.python:
        return Path(sys.executable)
    for minor in range(NEWEST_MINOR, entrant.python[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run([found, "-m", "venv", "--help"], capture_output=True).returncode == 0:
            return Path(found)
    wanted = ".".join(map(str, entrant.python))
    raise EntrantUnavailable(
        f"it needs Python {wanted} or newer; this is {sys.version_info[0]}.{sys.version_info[1]} and no newer one is "
        f"on the path. Run the command with Python {wanted} or newer."
    )


def _run(entrant: Entrant, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise EntrantUnavailable(f"its installation took longer than {INSTALL_SECONDS} s") from error
    if done.returncode:
        errors = [
            line for line in done.stderr.splitlines() if line.startswith("ERROR")
        ] or done.stderr.splitlines()
        raise EntrantUnavailable(f"it could not be installed: {(errors or ['no message'])[-1]}")


def _versions(python: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Of the distributions that are there; a requirement for another Python is not."""
    found: dict[str, str] = {}
    for name in ("", *names):
        done = subprocess.run(
            [str(python), "-c", VERSIONS, *([name] if name else [])], capture_output=True, text=True
        )
        if done.returncode == 0:
            found |= json.loads(done.stdout)
    return found
