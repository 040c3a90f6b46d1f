"""An engine in this process, or workers in their own."""

from collections.abc import Iterator

import pytest

from pgjobs.connections import brief_locks
from tests.worker.conftest import gate, spawn  # noqa: F401 - fixtures of the workers' tests serve here too
from tests.workflows.carrier import Carrier


@pytest.fixture
def carrier(transactional_db: None) -> Iterator[Carrier]:
    """Transactional: the recorder has a connection of its own, which sees only what is committed."""
    engine = Carrier()
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookkeeping waits for locks as long as it takes, where a test has it meet somebody once and not again."""
    monkeypatch.setattr(brief_locks, "__defaults__", ("30s",))  # as many modules have it under their own name
