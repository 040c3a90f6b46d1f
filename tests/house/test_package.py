"""What is published: the names to import, and the files of the wheel."""

import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import pgjobs

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_public_name_is_there() -> None:
    assert {"Backoff", "Fail", "LeaseLost", "Retry", "Snooze", "job"} <= set(pgjobs.__all__)
    for name in pgjobs.__all__:
        assert getattr(pgjobs, name) is not None


def test_public_names_are_sorted_and_explained() -> None:
    assert list(pgjobs.__all__) == sorted(pgjobs.__all__)
    for name in pgjobs.__all__:
        assert (getattr(pgjobs, name).__doc__ or "").strip(), name


def test_models_are_importable_from_where_django_looks() -> None:
    from pgjobs import models

    for name in models.__all__:
        assert getattr(models, name)._meta.app_label == "pgjobs"


def test_the_version_is_the_same_everywhere() -> None:
    assert pgjobs.__version__ == PROJECT["version"]
    assert pgjobs.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8") or "Unreleased" in (
        ROOT / "CHANGELOG.md"
    ).read_text(encoding="utf-8")


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "pgjobs" / "py.typed").exists() and "Typing :: Typed" in PROJECT["classifiers"]


@pytest.mark.skipif(
    find_spec("hatchling") is None, reason="hatchling, which builds the wheel, is not installed"
)
def test_the_wheel_has_the_package_and_nothing_else(tmp_path: Path) -> None:
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(tmp_path / built.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())

    assert {name.split("/")[0].split("-")[0] for name in names} == {"pgjobs", "django_pgjobs"}
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "pgjobs").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("pgjobs/")} == expected
    assert "pgjobs/py.typed" in names and "pgjobs/migrations/0001_initial.py" in names
