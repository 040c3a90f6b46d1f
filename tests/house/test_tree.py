"""Rules for every file of the repository, and the import contracts."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOT_OURS = {"__pycache__", "node_modules", "build", "dist", "media", "static", "htmlcov"}
TEXT = {".py", ".md", ".toml", ".sql", ".html", ".css", ".js", ".txt", ".yml", ".yaml", ".cfg", ".sh", ""}
MOST_LINES, MOST_FUNCTION_LINES = 400, 40
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}
# Put together from pieces, so that this file does not contain them itself.
FOREIGN = re.compile(
    "|".join(
        [
            r"(?<![\w.~$}>-])/(?:work|root)/\w",
            r"pypi" + r"\.org",
            r"python" + r"hosted",
            r"\.(?:lib" + r"rary|mir" + r"ror)/",
            r"\b(?:\d{1,3}\.){3}\d{1,3}:\d{2,5}/(?:simple|root)",
        ]
    )
)


def ours() -> list[Path]:
    """Files that are or would be committed; in an unpacked release, where there is no git, all that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(p in NOT_OURS or (p.startswith(".") and p != ".ci") for p in path.relative_to(ROOT).parts)
    ]


FILES = ours()
PYTHON = [path for path in FILES if path.suffix == ".py"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_files_were_found() -> None:
    assert {"pgjobs/__init__.py", "pyproject.toml", ".ci/run"} <= {name(path) for path in FILES}


def test_no_file_is_too_long() -> None:
    lengths = {
        name(p): len(p.read_text(encoding="utf-8").splitlines())
        for p in PYTHON
        if "migrations" not in p.parts
    }

    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_function_of_the_package_is_too_long() -> None:
    long = {}
    for path in PYTHON:
        if path.is_relative_to(ROOT / "pgjobs") and "migrations" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                    lines = node.end_lineno - node.body[0].lineno + 1
                    if lines > MOST_FUNCTION_LINES:
                        long[f"{name(path)}:{node.name}"] = lines

    assert long == {}


def test_no_file_has_a_vague_name() -> None:
    assert [name(path) for path in PYTHON if VAGUE & {*path.parts, path.stem}] == []


def test_the_package_explains_its_modules() -> None:
    """Every module that holds code opens by saying what it is for."""
    silent = []
    for path in PYTHON:
        if path.is_relative_to(ROOT / "pgjobs") and "migrations" not in path.parts:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if tree.body and not ast.get_docstring(tree):
                silent.append(name(path))

    assert silent == []


def test_nothing_speaks_of_the_machine_it_was_written_on() -> None:
    found = []
    for path in FILES:
        if path.suffix in TEXT:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if FOREIGN.search(line):
                    found.append(f"{name(path)}:{number}: {line.strip()[:120]}")

    assert found == []


@pytest.mark.parametrize(
    ("line", "foreign"),
    [
        ("see /wor" + "k/main/x", True),
        ("/roo" + "t/.cache", False),
        ("https://py" + "pi.org/simple", True),
        ("../wor" + "k/shared", False),
        ("def work(root): ...", False),
    ],
)
def test_the_rule_itself(line: str, foreign: bool) -> None:
    assert bool(FOREIGN.search(line)) == foreign


def test_statuses_are_assigned_by_verbs_only() -> None:
    """No other room than leases, queue and workflows writes a status; the faces and the worker call verbs."""
    assigning = re.compile(r"\.status\s*=[^=]|update\([^)]*\bstatus\s*=|SET status")
    found = [
        f"{name(path)}: {match[0]}"
        for path in PYTHON
        for room in ["admin", "management", "worker", "checks.py"]
        if path.is_relative_to(ROOT / "pgjobs" / room)
        for match in assigning.finditer(path.read_text(encoding="utf-8"))
    ]

    assert found == []


@pytest.mark.skipif(find_spec("importlinter") is None, reason="import-linter is not installed")
def test_imports_point_down() -> None:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0 broken" in checked.stdout
