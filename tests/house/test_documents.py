"""What the documents say is what the code says."""

import re
import textwrap
from pathlib import Path

import pytest

from pgjobs.queue.states import MOVES, JobStatus
from tests.house.documents import DOCS, PAGES

ROOT = DOCS.parent
PROSE = sorted({*DOCS.glob("**/*.md"), *ROOT.glob("*.md")})
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?://|mailto:)(?P<target>[^)#\s]+)")
NAMED_TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)(?:::(?P<test>\w+))?`")


def blocks(page: Path, kind: str) -> list[str]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [textwrap.dedent(block["text"]) for block in found if block["kind"] == kind]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_made_from_the_code_is_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")

    assert written == PAGES[name](), f"docs/{name} is out of date; run: python -m tests.house.documents"


def test_the_page_of_states_has_every_status_and_every_arrow() -> None:
    page = PAGES["states.md"]()

    for status in JobStatus:
        assert f"| `{status.value}` |" in page
    for move in MOVES:
        assert f"| `{move.source.value}` | `{move.target.value}` | {move.verb} | {move.meaning} |" in page
        assert re.search(
            rf"^    {move.source.value} --> {move.target.value}: .*{move.verb}", page, re.MULTILINE
        )


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_python_in_documents_compiles(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link["target"] for link in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8")))]

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page: Path) -> None:
    for named in NAMED_TEST.finditer(page.read_text(encoding="utf-8")):
        file = ROOT / named["path"]
        assert file.exists(), f"{page.name} names {named['path']}, which does not exist"
        if named["test"]:
            assert f"def {named['test']}(" in file.read_text(encoding="utf-8"), named[0]


def test_the_two_commands_of_the_readme_are_one_line_each() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md yet")
    demo, suite = blocks(readme, "sh")[:2]

    assert demo.strip().endswith("manage.py demo") and "pytest" in suite
    assert demo.count("\n") == suite.count("\n") == 1


def test_the_table_of_commands_has_each() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = (ROOT / "pgjobs" / "management" / "commands").glob("[a-z]*.py")

    assert [each.stem for each in commands if f"`{each.stem}`" not in table] == []


def test_the_promise_is_the_same_wherever_it_is_printed() -> None:
    def promise(page: Path) -> str:
        quoted = re.findall(r"^> (.*(?:\n> .*)*)", page.read_text(encoding="utf-8"), re.MULTILINE)
        [found] = [" ".join(q.replace("\n> ", " ").split()) for q in quoted if "at least once" in q]
        return found

    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md yet")
    assert promise(readme) == promise(DOCS / "guarantees.md")


def test_every_command_is_in_the_table_of_the_readme_and_in_a_page() -> None:
    files = (ROOT / "pgjobs" / "management" / "commands").glob("[a-z]*.py")
    commands = sorted(file.stem for file in files)
    table = re.findall(
        r"^\| (`[a-z_`, ]+`) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = {name for row in table for name in re.findall(r"`(\w+)`", row)}
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))

    assert len(commands) > 20 and [name for name in commands if name not in listed] == []
    assert [name for name in commands if not re.search(rf"\b{name}\b", pages)] == []
