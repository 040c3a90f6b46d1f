"""pgjobs_status, pgjobs_health and pgjobs_why: what they print, and how they end."""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from pgjobs.management.screen import clean, columns, fitted
from tests.health.situations import job, minute, pause, run, worker
from tests.support.environment import ROOT
from tests.support.waiting import wait_until
from tests.workflows.rows import approval, user

pytestmark = pytest.mark.django_db

HOSTILE = "\x1b[2J\x07evil\nline\u202e"


def call(*arguments: str) -> tuple[int, str]:
    """Exit code and output."""
    out = io.StringIO()
    try:
        call_command(*arguments, stdout=out, no_color=True)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def trouble() -> None:
    worker("w-1", queues='["mail"]', version="v141", slots=4)
    worker("w-7", queues='["billing"]', beat=4000, poll=4000)
    for _ in range(3):
        job(queue="billing", ago=200)
    job(queue="mail", ago=3)
    job("running", queue="mail", ago=-9)
    pause("reports", ago=60)
    minute(60, queue="mail", done=60)


def test_status_of_an_empty_queue() -> None:
    code, text = call("pgjobs_status")
    assert code == 0 and "OK, nothing is stuck" in text and "no queue has work" in text


def test_status_in_trouble_fits_a_screen() -> None:
    trouble()
    code, text = call("pgjobs_status")
    assert code == 2 and len(text.splitlines()) <= 24
    lines = text.splitlines()
    assert "PROBLEMS 2" in lines[0]
    assert lines[1].startswith(" 1 NO_WORKER  No live worker serves queue 'billing': 3 jobs due")
    assert lines[2] == "   try: manage.py runworkers --queues billing"
    assert lines[3].startswith(" 2 PAUSED  Queue 'reports' is paused by ana")
    assert lines[4] == "   try: manage.py pgjobs_resume --queue reports"
    assert re.search(r"^billing +3 +3 min 20 s +0/0 .* NO WORKER$", text, re.MULTILINE)
    assert re.search(r"^mail +1 +[345] s +1/4 .* 1  ok$", text, re.MULTILINE)
    assert "WORKERS 1 live 1 silent  versions v141x1  throughput " in text


def test_status_of_one_queue() -> None:
    trouble()
    assert call("pgjobs_status", "--queue", "mail")[0] == 0
    code, text = call("pgjobs_status", "--queue", "billing")
    assert code == 2 and "mail" not in text and "PROBLEMS 1" in text
    told = json.loads(call("pgjobs_status", "--queue", "billing", "--json")[1])
    assert [row["name"] for row in told["queues"]] == ["billing"] and len(told["problems"]) == 1


def test_status_in_much_trouble_still_fits_a_screen() -> None:
    for number in range(20):
        job(queue=f"it's {number:02}", ago=500)
    lines = call("pgjobs_status")[1].splitlines()
    assert len(lines) <= 24 and "   and 34 more" in lines and "and 14 more queues" in lines
    assert """   try: manage.py runworkers --queues 'it'"'"'s 00'""" in lines


@pytest.mark.parametrize(
    "command",
    [("pgjobs_status",), ("pgjobs_status", "--json"), ("pgjobs_status", "--watch"), ("pgjobs_health",)],
)
def test_a_queue_that_is_not_there_is_no_good_news(command: tuple[str, ...]) -> None:
    trouble()
    with pytest.raises(CommandError, match=r"a queue 'mial'.*did you mean 'mail'") as refused:
        call(*command, "--queue", "mial")
    assert refused.value.returncode == 1


def test_status_for_programs() -> None:
    trouble()
    code, text = call("pgjobs_status", "--json")
    told = json.loads(text)
    assert code == 2 and (told["schema"], told["status"]) == (1, "problem")
    assert {row["name"]: row["state"] for row in told["queues"]} == {
        "billing": "no worker",
        "reports": "paused",
        "mail": "ok",
    }
    assert told["workers"][0]["state"] == "live" and told["totals"]["running"] == 1
    assert next(r for r in told["queues"] if r["name"] == "reports")["pause"]["by"] == "ana"


def test_what_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    run("ALTER TABLE pgjobs_minute RENAME TO elsewhere")
    code, text = call("pgjobs_status")
    assert code == 3 and "CANNOT TELL" in text and "QUEUES not available" in text


def test_hostile_text_cannot_steer_a_terminal() -> None:
    worker("w-1", queues=json.dumps([HOSTILE]), version=HOSTILE)
    job(queue=HOSTILE.replace("\x00", ""), ago=5, job_type="x", last_error=HOSTILE)
    pause(HOSTILE, ago=5)
    pk = job(queue="other", ago=5)
    for arguments in (("pgjobs_status",), ("pgjobs_health",), ("pgjobs_why", str(pk))):
        text = call(*arguments)[1]
        assert not {c for c in text if not c.isprintable()} - {"\n"}, arguments
    assert clean(HOSTILE) == "\ufffd[2J\ufffdevil line\ufffd"


def test_health_is_a_probe() -> None:
    assert call("pgjobs_health") == (0, "ok: nothing is stuck\n")
    trouble()
    code, text = call("pgjobs_health")
    assert code == 2 and text.startswith("critical NO_WORKER since ") and "\nnote PAUSED since " in text
    assert " Try: manage.py runworkers --queues billing\n" in text
    assert call("pgjobs_health", "--check", "LATE", "WEDGED")[0] == 0
    assert call("pgjobs_health", "--check", "PAUSED")[0] == 2
    assert call("pgjobs_health", "--queue", "mail")[0] == 0
    assert json.loads(call("pgjobs_health", "--json")[1])["problems"][0]["queue"] == "billing"
    with pytest.raises(CommandError, match="invalid choice"):
        call("pgjobs_health", "--check", "NONSENSE")


def test_health_that_cannot_tell() -> None:
    run("ALTER TABLE pgjobs_minute RENAME TO elsewhere")
    code, text = call("pgjobs_health")
    assert code == 3 and "unknown STATS_STALE:" in text
    assert call("pgjobs_health", "--check", "NO_WORKER")[0] == 0


def test_why_in_a_terminal() -> None:
    pk = job(queue="billing", ago=90)
    code, text = call("pgjobs_why", str(pk))
    lines = text.splitlines()
    assert code == 2 and lines[0].startswith(f"job {pk} jobsapp.ok [billing] pending since ")
    assert any(line.startswith(" FAIL  No live worker serves 'billing'") for line in lines)
    assert lines[-1] == "try: start a worker: manage.py runworkers --queues billing"
    assert json.loads(call("pgjobs_why", str(pk), "--json")[1])["job"] == pk
    worker()
    assert call("pgjobs_why", str(pk))[0] == 0


def test_why_of_an_execution_in_a_terminal() -> None:
    worker()
    user("ann", "pgjobs.decide_wait")
    asked = approval()
    code, text = call("pgjobs_why", "--execution", str(asked.execution_id))
    lines = text.splitlines()
    assert code == 2 and lines[0].startswith(
        f"execution {asked.execution_id} tests.flow [default] waiting since "
    )
    assert lines[1].startswith(" FAIL  It has waited 0 s in 'approval#0' for a decision on 'apply fix'")
    assert lines[-1].startswith(f"try: manage.py pgjobs_approve {asked.pk}")
    told = json.loads(call("pgjobs_why", "--execution", str(asked.execution_id), "--json")[1])
    assert told["workflow"] == "tests.flow" and told["checks"][0]["kind"] == "approval"
    for wrong in ((), ("1", "--execution", "2"), ("--execution", "4711")):
        with pytest.raises(CommandError):
            call("pgjobs_why", *wrong)


def test_why_of_nothing_and_of_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("4711", "0", str(2**63)):
        with pytest.raises(CommandError) as refused:
            call("pgjobs_why", wrong)
        assert refused.value.returncode == 1

    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr("pgjobs.management.commands.pgjobs_why.why", away)
    with pytest.raises(CommandError, match="connection refused") as refused:
        call("pgjobs_why", "1")
    assert refused.value.returncode == 3


@pytest.mark.parametrize("seconds", ["0", "nan", "-1", "1e9"])
def test_watching_has_limits(seconds: str) -> None:
    with pytest.raises(CommandError, match="out of range"):
        call("pgjobs_status", "--watch", seconds)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_cut_to_the_terminal_and_colours_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    assert fitted("0123456789", Terminal()) == "0123456789"
    assert fitted("0123456789ab", Terminal()) == "012345678…"
    assert fitted("0123456789ab", io.StringIO()) == "0123456789ab"
    coloured = "\x1b[31m01\x1b[0m23456789"
    assert fitted(coloured, Terminal()) == coloured
    assert fitted(coloured + "ab", Terminal()) == "\x1b[31m01\x1b[0m2345678…\x1b[0m"
    assert columns([("a", "10"), ("bcd", "2")]) == ["a    10", "bcd   2"]


@contextmanager
def watching(
    env: dict[str, str], terminal: bool, *command: str
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A command, `pgjobs_status --watch` unless told, in a pseudo-terminal, or with its output in a pipe."""
    reading, writing = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "manage.py", *(command or ("pgjobs_status", "--watch", "0.2"))],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
    )
    os.close(writing)
    try:
        yield process, reading
    finally:
        process.kill()
        process.wait()
        os.close(reading)


def read_until(fd: int, found: Callable[[str], bool]) -> str:
    text = ""

    def more() -> bool:
        nonlocal text
        if select.select([fd], [], [], 0)[0]:
            text += os.read(fd, 65_536).decode(errors="replace")
        return found(text)

    wait_until(more, 40, lambda: f"more than {text!r}")
    return text


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watched_screen_is_given_back(
    worker_env: Callable[[], dict[str, str]], number: signal.Signals
) -> None:
    with watching(worker_env(), terminal=True) as (process, fd):
        seen = read_until(fd, lambda text: text.count("nothing is stuck") >= 2)
        assert "\x1b[?1049h" in seen
        process.send_signal(number)
        rest = read_until(fd, lambda text: "\x1b[?1049l" in text)
        assert rest.rstrip().endswith("\x1b[?25h\x1b[?1049l")
        assert process.wait(10) == (143 if number == signal.SIGTERM else 0)


@pytest.mark.django_db(transaction=True)
def test_without_a_terminal_each_frame_is_plain_text(worker_env: Callable[[], dict[str, str]]) -> None:
    with watching(worker_env(), terminal=False) as (process, fd):
        seen = read_until(fd, lambda text: text.count("\n--\n") >= 2)
        assert "\x1b" not in seen
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_events_are_followed_until_a_signal(
    worker_env: Callable[[], dict[str, str]], number: signal.Signals
) -> None:
    worker("w-before")
    with watching(worker_env(), False, "pgjobs_events", "--follow") as (process, fd):
        read_until(fd, lambda text: "worker w-before started" in text)
        worker("w-after")
        seen = read_until(fd, lambda text: "worker w-after started" in text)
        process.send_signal(number)
        assert process.wait(10) == (143 if number == signal.SIGTERM else 0)
        assert "w-before" not in seen and os.read(fd, 65_536) == b"", "nothing more, and no traceback"
