"""Worker processes on a short clock, gates for their handlers, and any setting of pgjobs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.workers import Spawner, Workers

# Suspects and the reaper hurry, so that a story of crashes fits into a test.
HURRY = {"CRASH_DELAY_SECONDS": 0.1, "CRASH_DELAY_CAP_SECONDS": 0.5, "REAP_SECONDS": 0.3}

Spawn = Callable[..., Workers]


class Gate:
    """A file that handlers wait for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def open(self) -> None:
        self._path.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Callable[[str], Gate]:
    """Makes gates, closed at first."""
    return lambda name: Gate(tmp_path / f"{name}.gate")


def hurried(settings: dict[str, Any] | None = None) -> dict[str, str]:
    """The environment of workers with these settings of PGJOBS."""
    return {"PGJOBS_OVERRIDES": json.dumps({**HURRY, **(settings or {})})}


@pytest.fixture
def spawn(spawn_workers: Spawner) -> Spawn:
    """As `spawn_workers`, in a hurry. `settings` are further settings of PGJOBS."""

    def start(
        *options: str, settings: dict[str, Any] | None = None, env: dict[str, str] | None = None, **more: Any
    ) -> Workers:
        return spawn_workers(*options, env={**hurried(settings), **(env or {})}, **more)

    return start
