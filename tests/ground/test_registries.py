"""Names by which rows find their code: never given silently to another function."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pgjobs import job
from pgjobs.exceptions import DuplicateName, InvalidHandler
from pgjobs.queue.registry import registry

MODULE = """
from pgjobs import job

@job
def plain() -> str:
    return "plain"

def made(name):
    @job(name=name)
    def inner() -> str:
        return name
    return inner

one, two = made("reloaded.one"), made("reloaded.two")
"""


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test declares is forgotten after it."""
    monkeypatch.setattr(registry, "_by_name", dict(registry._by_name))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "reloaded_jobs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("reloaded_jobs")
    del sys.modules["reloaded_jobs"]


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that forgot ``functools.wraps``."""

    def wrapper() -> Any:
        return function()

    return wrapper


def first() -> str:
    return "first"


def second() -> str:
    return "second"


def test_the_name_of_a_local_function_is_nobodys_default() -> None:
    with pytest.raises(InvalidHandler, match=r"unwrapped\.<locals>\.wrapper.*name="):
        job(unwrapped(first))

    assert not [name for name in registry.names() if name.endswith(".wrapper")]


def test_with_names_of_their_own_both_run() -> None:
    job(name="local.first")(unwrapped(first))
    job(name="local.second")(unwrapped(second))

    assert [registry.get(f"local.{n}").function() for n in ("first", "second")] == ["first", "second"]


def test_one_place_does_not_make_two_functions_one() -> None:
    job(name="local.same")(unwrapped(first))

    with pytest.raises(DuplicateName, match=r"'local\.same' is declared twice"):
        job(name="local.same")(unwrapped(second))

    assert registry.get("local.same").function() == "first"


def test_a_module_may_be_reloaded(module: ModuleType) -> None:
    before = registry.get(module.plain.job_type)

    importlib.reload(module)

    assert registry.get(module.plain.job_type) is module.plain.handler is not before
    assert registry.get("reloaded.two").function() == "reloaded.two"


def test_one_function_may_be_declared_again() -> None:
    job(name="again")(first)
    later = job(name="again", timeout=5)(first)

    assert registry.get("again") is later.handler
