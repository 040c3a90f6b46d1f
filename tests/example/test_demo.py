"""`manage.py demo` end to end, as a person starts it: in a process of its own, with nothing set up before."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from example_project.demo.crew import Crew
from example_project.demo.report import problems
from example_project.demo.story import Story
from tests.support.waiting import wait_until
from tests.support.workers import MARK, ROOT, alive, processes_marked

# Reachable by nobody: if the demo used the database of the settings, it would end in an error.
NOWHERE = "postgres://nobody@127.0.0.1:1/nowhere"

pytestmark = [pytest.mark.workers, pytest.mark.timeout(170)]


class Demo:
    """A running demo, its output in a file and all of its processes marked."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.mark = uuid.uuid4().hex
        self.temporary = folder / "tmp"
        self.temporary.mkdir(mode=0o755)
        self.log = folder / "demo.log"
        environment = {
            **os.environ,
            "DATABASE_URL": NOWHERE,
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", *options],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def family(self) -> set[int]:
        return processes_marked(self.mark)

    def end(self, seconds: float = 150) -> int:
        """The exit code. Raises when it does not end in time."""
        return self.process.wait(seconds)

    def wait_for(self, text: str, seconds: float = 60) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            assert self.process.poll() is None or re.search(text, self.output()), self.output()
            return re.search(text, self.output())

        match = wait_until(found, seconds, lambda: f"{text!r} in:\n{self.output()}")
        assert match is not None
        return match

    def assert_nothing_left(self) -> None:
        wait_until(lambda: not self.family(), 40, lambda: f"the end of {self.family()}")
        wait_until(
            lambda: not list(self.temporary.iterdir()), 20, lambda: f"no {list(self.temporary.iterdir())}"
        )


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that another account may enter, as the server's must when the tests run as root."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture
def demos(folder: Path) -> Iterator[list[Demo]]:
    """Demos to be ended with the test, whatever it did."""
    started: list[Demo] = []
    yield started
    for demo in started:
        demo.process.kill()
        demo.process.wait()
        for pid in demo.family():
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def postgres_of(pid: int) -> list[int]:
    """The database server among a process's children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"postgres" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.campaign
def test_the_whole_story(folder: Path, demos: list[Demo]) -> None:
    demo = Demo(folder)
    demos.append(demo)
    code = demo.end()
    text = demo.output()
    assert code == 0, text
    assert "SIGKILL to worker" in text and "Nothing was lost and no page is stored twice" in text
    for question in (
        "What is running, by whom, since when",
        "What is waiting, since when, and why?",
        "What has failed for good, after how many attempts, and why?",
        "What was lost to a dead worker, when was it last heard of, and who finished the work?",
    ):
        assert question in text
    report = text.partition("\nDocuments\n")[2]
    assert len(re.findall(r"^ +\S+\.pdf +succeeded ", report, re.MULTILINE)) == 12
    assert len(re.findall(r"^ +\S+\.pdf +failed +1 ", report, re.MULTILINE)) == 3
    for reason in ("needs a password", "is empty", "damaged or cut off"):
        assert reason in report
    assert "which had carried end to end tests" in text and "inside open_pull_request" in text
    assert re.search(r"worker lost +\d+ +worker \S+ died", text)
    assert re.search(r"open_pull_request#1 +step done +1 +incident/execution-\d+", text)
    assert "Which fixes were rejected, at which step, by whom, and why?" in text
    assert re.search(r"apply fix#1 +demo-reviewer ", text)
    assert "no recorded step ran again" in text
    demo.assert_nothing_left()


@pytest.mark.campaign
def test_serve_stays_until_it_is_told_to_end(folder: Path, demos: list[Demo]) -> None:
    port = free_port()
    demo = Demo(folder, "--serve", "--port", str(port), "--page-delay", "0.3")
    demos.append(demo)
    welcome = demo.wait_for(r"Documents: (\S+) .* Login: (\S+)   Password: (\S+)")
    demo.wait_for("Ctrl-C ends everything", 120)
    with urllib.request.urlopen(welcome[1], timeout=10) as answer:
        assert "lease-agreement.pdf" in answer.read().decode()
    with urllib.request.urlopen(f"{welcome[1]}incidents/", timeout=10) as answer:
        assert "deployment to production: failure" in answer.read().decode()
    with urllib.request.urlopen(f"{welcome[1]}static/documents/documents.css", timeout=10) as answer:
        assert answer.status == 200
    demo.process.send_signal(signal.SIGINT)
    assert demo.end(40) == 0
    demo.assert_nothing_left()


def test_a_killed_demo_takes_everything_with_it(folder: Path, demos: list[Demo]) -> None:
    demo = Demo(folder, "--serve", "--port", str(free_port()))
    demos.append(demo)
    demo.wait_for("SIGKILL to worker")
    assert len(demo.family()) >= 4  # the demo, the web server, the workers and their parent
    servers = postgres_of(demo.process.pid)
    assert servers
    demo.process.kill()
    demo.process.wait()
    demo.assert_nothing_left()
    wait_until(lambda: not any(map(alive, servers)), 20, "the end of the database server")


def test_a_port_in_use_is_said(folder: Path, demos: list[Demo]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        demo = Demo(folder, "--serve", "--port", str(taken.getsockname()[1]))
        demos.append(demo)
        assert demo.end(60) == 1
    assert "cannot be used" in demo.output() and "--port" in demo.output()
    demo.assert_nothing_left()


def test_a_folder_without_pdfs_is_refused(folder: Path, demos: list[Demo]) -> None:
    demo = Demo(folder, "--documents", str(folder / "tmp"))
    demos.append(demo)
    assert demo.end(60) == 1
    assert "no folder with *.pdf files" in demo.output()


def test_the_verdict_sees_what_went_wrong(transactional_db: None, media_root: Path) -> None:
    """A report that can only praise proves nothing: an unfinished job and a missed kill are named."""
    from django.core.files.base import ContentFile

    from example_project.demo.paper import Paper, write_pdf
    from example_project.documents.intake import receive

    paper = Paper("a.pdf", write_pdf("A", 2), 2)
    (document,) = receive([ContentFile(paper.content, name=paper.name)])
    found = problems(Story(papers={document.pk: paper, document.pk + 1: Paper("b.pdf", b"", 0)}))
    assert any("a.pdf: lost: its job is pending" in problem for problem in found)
    assert "b.pdf: the document or its job is gone." in found
    assert any("No worker was killed" in problem for problem in found)


def test_a_child_that_ends_by_itself_is_reported_with_its_log() -> None:
    from example_project.demo.crew import ChildFailed

    with Crew() as crew:
        crew.start("odd", "no_such_command")

        def failed() -> str:
            try:
                crew.check()
            except ChildFailed as error:
                return str(error)
            return ""

        text = wait_until(failed, 30, "the child's end")
        folder = crew.folder
    assert "exit code 1" in text and "no_such_command" in text
    assert not folder.exists()
