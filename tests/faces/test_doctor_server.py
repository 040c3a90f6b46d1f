"""What pgjobs_doctor finds about a whole server, on one that may be set up for it; and the command itself."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from example_project.postgres import EmbeddedPostgres, PostgresUnavailable, find_binaries
from pgjobs.doctor.examination import examine
from pgjobs.doctor.findings import CRITICAL, NOTE, WARNING
from tests.faces.doctors import found, one, run
from tests.faces.rows import make_worker
from tests.support.database import COPIED_KEYS, point_at
from tests.support.waiting import wait_until

ACCOMMODATING = {
    "max_prepared_transactions": "3",
    "wal_level": "logical",
}


@pytest.fixture(scope="module")
def own_postgres(django_db_blocker: Any) -> Iterator[tuple[EmbeddedPostgres, str]]:
    """A durable server, and the URL of a database on it, with all tables in it."""
    try:
        binaries = find_binaries(prefer_system=os.environ.get("PGJOBS_TEST_POSTGRES") == "system")
    except PostgresUnavailable as missing:
        pytest.skip(str(missing))
    with EmbeddedPostgres(durable=True, binaries=binaries, settings=ACCOMMODATING) as server:
        url = server.create_database("pgjobs")
        with pointed_at(url, django_db_blocker):
            call_command("migrate", verbosity=0, interactive=False)
        yield server, url


@pytest.fixture(autouse=True)
def healthy(own_postgres: tuple[EmbeddedPostgres, str], django_db_blocker: Any) -> Iterator[None]:
    """Django's connection means that database."""
    with pointed_at(own_postgres[1], django_db_blocker):
        run("ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = '5min'")
        reconnect()
        yield


@contextmanager
def pointed_at(url: str, django_db_blocker: Any) -> Iterator[None]:
    """Django's connection means the database of that URL for a while."""
    before = {key: connection.settings_dict[key] for key in COPIED_KEYS if key in connection.settings_dict}
    with django_db_blocker.unblock():
        try:
            connection.close()
            point_at(connection.settings_dict, url)
            yield
        finally:
            connection.close()
            connection.settings_dict.update(before)


def reconnect() -> None:
    """The next statement opens a new session, with what is in force by then."""
    connection.close()


@contextmanager
def system(name: str, value: str) -> Iterator[None]:
    """ALTER SYSTEM for a while; returns once a new session sees it."""

    def reload(statement: str, expected: str | None) -> None:
        run(statement, "SELECT pg_reload_conf()")

        def arrived() -> bool:
            reconnect()
            return expected is None or _setting(name) == expected

        wait_until(arrived, 10, f"{name} = {expected}")

    before = _setting(name)
    reload(f"ALTER SYSTEM SET {name} = '{value}'", value)
    try:
        yield
    finally:
        reload(f"ALTER SYSTEM RESET {name}", before)


def _setting(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", [name])
        return str(cursor.fetchone()[0])


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("pgjobs_doctor", *arguments, stdout=out, no_color=True)
    return out.getvalue()


# The command


def test_a_healthy_database() -> None:
    assert examine().findings == []
    text = command()
    assert text.startswith("Database pgjobs, PostgreSQL ") and text.endswith("\nNothing found.\n")
    assert json.loads(command("--json")) | {"at": "", "server": ""} == {
        "schema": 1, "database": "pgjobs", "server": "", "at": "", "findings": [],
        "counts": {"critical": 0, "warning": 0, "note": 0},
    }  # fmt: skip


def test_a_critical_finding_is_an_exit_code_and_comes_first() -> None:
    with system("autovacuum", "off"), system("synchronous_commit", "off"):
        out = StringIO()
        with pytest.raises(CommandError, match=r"^1 critical finding\.$") as ended:
            call_command("pgjobs_doctor", stdout=out, no_color=True)
        assert ended.value.returncode == 1
        text = out.getvalue()
        assert text.index("critical server-setting: autovacuum is off") < text.index("warning server-setting")
        assert "cure: ALTER SYSTEM SET autovacuum = on" in text and "1 critical, 1 warning" in text
        out = StringIO()
        with pytest.raises(CommandError):
            call_command("pgjobs_doctor", "--json", stdout=out)
        first, second = json.loads(out.getvalue())["findings"]
        assert (first["severity"], second["severity"]) == ("critical", "warning")
        assert set(first) == {"code", "severity", "what", "measure", "cure", "statement"}


def test_a_warning_is_no_failure() -> None:
    with system("synchronous_commit", "off"):
        assert "1 warning" in command()


def test_a_database_that_is_away() -> None:
    host = connection.settings_dict["OPTIONS"]["host"]
    reconnect()
    connection.settings_dict["OPTIONS"]["host"] = f"{host}/nowhere"
    try:
        with pytest.raises(CommandError, match=r"Database 'default' cannot be examined: .*Start the server"):
            command()
    finally:
        connection.settings_dict["OPTIONS"]["host"] = host


# Settings


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("fsync", "off", CRITICAL),
        ("full_page_writes", "off", CRITICAL),
        ("track_counts", "off", CRITICAL),
    ],
)
def test_settings_of_the_server(name: str, value: str, severity: str) -> None:
    assert found("server-setting") == []
    with system(name, value):
        assert one("server-setting", name).severity == severity
    assert found("server-setting") == []


@pytest.mark.parametrize(
    ("name", "value", "harmless"),
    [
        ("synchronous_commit", "off", "local"),
        ("default_transaction_isolation", "serializable", "read committed"),
        ("statement_timeout", "5s", "60s"),
        ("lock_timeout", "100ms", "10s"),
        ("idle_session_timeout", "30s", "10min"),
        ("idle_in_transaction_session_timeout", "2s", "1min"),
    ],
)
def test_settings_of_the_role_and_their_cure(name: str, value: str, harmless: str) -> None:
    run(f"ALTER ROLE CURRENT_USER SET {name} = '{harmless}'")
    reconnect()
    assert found("server-setting") == []
    run(f"ALTER ROLE CURRENT_USER SET {name} = '{value}'")
    reconnect()
    try:
        finding = one("server-setting", name)
        assert finding.severity is WARNING and finding.measure.startswith(f"{name} = ")
        run(finding.cure.split(";")[0])
        reconnect()
        assert found("server-setting") == []
    finally:
        run(f"ALTER ROLE CURRENT_USER RESET {name}")


def test_nothing_that_ends_a_forgotten_transaction() -> None:
    run("ALTER ROLE CURRENT_USER RESET idle_in_transaction_session_timeout")
    reconnect()
    finding = one("server-setting")
    assert finding.severity is NOTE and "forgot its transaction" in finding.what

    run(finding.cure.split(";")[0])
    reconnect()
    assert found("server-setting") == []


def test_the_isolation_level_of_django() -> None:
    options = connection.settings_dict["OPTIONS"]
    options["isolation_level"] = psycopg.IsolationLevel.SERIALIZABLE
    reconnect()
    try:
        assert "SERIALIZABLE" in one("server-setting", "isolation_level").what
    finally:
        del options["isolation_level"]


def test_a_database_that_takes_no_writes() -> None:
    run("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on")
    reconnect()
    try:
        assert one("read-only").severity is CRITICAL
    finally:
        run(
            "SET default_transaction_read_only = off",
            "ALTER ROLE CURRENT_USER RESET default_transaction_read_only",
        )
        reconnect()
    assert found("read-only") == []


def test_connections_in_use() -> None:
    run("ALTER DATABASE pgjobs CONNECTION LIMIT 2")
    try:
        with connection.get_new_connection(connection.get_connection_params()):
            assert one("connections", "the database's limit").severity is CRITICAL
        run("ALTER DATABASE pgjobs CONNECTION LIMIT 100")
        assert found("connections") == []
    finally:
        run("ALTER DATABASE pgjobs CONNECTION LIMIT -1")


def test_connections_that_workers_may_need() -> None:
    run("ALTER ROLE CURRENT_USER CONNECTION LIMIT 20")
    try:
        make_worker("small", slots=10)
        assert found("connections") == []
        make_worker("large", slots=10)
        assert "2 live workers may need up to 30 connections" in one("connections").what
    finally:
        run("ALTER ROLE CURRENT_USER CONNECTION LIMIT -1", "DELETE FROM pgjobs_worker")


# What holds back vacuum


def test_a_prepared_transaction() -> None:
    quiet = "SET LOCAL pgjobs.notify = 'off'"  # a transaction that notifies cannot be prepared
    run("BEGIN", quiet, "INSERT INTO pgjobs_job (job_type) VALUES ('t')", "PREPARE TRANSACTION 'order-17'")
    try:
        finding = one("prepared-transaction", snapshot_seconds=0)
        assert "'order-17'" in finding.what and "ROLLBACK PREPARED 'order-17';" in finding.cure
        assert (
            one("prepared-transaction", snapshot_seconds=0, snapshot_critical_seconds=0).severity is CRITICAL
        )
        assert found("prepared-transaction") == []
    finally:
        run("ROLLBACK PREPARED 'order-17'")
    assert found("prepared-transaction", snapshot_seconds=0) == []


def test_a_replication_slot_that_nobody_uses() -> None:
    run("SELECT pg_create_physical_replication_slot('gone_standby', true)")
    run("SELECT pg_create_logical_replication_slot('gone_search', 'pgoutput')")
    try:
        physical = one("replication-slot", "physical replication slot 'gone_standby'")
        assert physical.severity is WARNING and "MB of WAL" in physical.measure
        run(
            "INSERT INTO pgjobs_job (job_type) SELECT 't' FROM generate_series(1, 1000)",
            "DELETE FROM pgjobs_job",
        )
        logical = one("replication-slot", "logical replication slot 'gone_search'", slot_bytes=1_000)
        assert logical.severity is CRITICAL and "pg_drop_replication_slot('gone_search')" in logical.cure
        assert one("replication-slot", "'gone_search'", old_transactions=0).severity is CRITICAL
    finally:
        run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    assert found("replication-slot") == []


def test_the_queue_of_notifications(own_postgres: tuple[EmbeddedPostgres, str]) -> None:
    server, _ = own_postgres
    if int(_setting("server_version_num")) < 170_000:
        pytest.skip("before PostgreSQL 17 the queue always has 8 GB")
    reconnect()
    server.settings["max_notify_queue_pages"] = "64"
    server.restart()
    try:
        with connection.get_new_connection(connection.get_connection_params()) as listening:
            listening.execute("LISTEN elsewhere")
            listening.commit()
            listening.execute("BEGIN")
            listening.execute("SELECT 1")
            run(*[f"SELECT pg_notify('elsewhere', '{n}' || repeat('x', 7900))" for n in range(30)])
            assert one("notify-queue").severity is WARNING and "full" in one("notify-queue").measure
            listening.rollback()
    finally:
        reconnect()
        del server.settings["max_notify_queue_pages"]
        server.restart()
    assert found("notify-queue") == []


# A pooler


@pytest.fixture
def pooled(own_postgres: tuple[EmbeddedPostgres, str], tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Gives what turns Django's connection to a PgBouncer in transaction mode, in front of the server."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    server, _ = own_postgres
    sockets = server.folder / "pooler"
    sockets.mkdir(exist_ok=True)
    account = server._account
    if account.ids is not None:
        os.chown(sockets, *account.ids)
    config = sockets / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n* = host={server.folder} port=5432 user=postgres\n"
        f"[pgbouncer]\nunix_socket_dir = {sockets}\nlisten_port = 6432\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 3\n"
    )
    config.chmod(0o644)
    process = subprocess.Popen([program, "-q", str(config)], cwd=sockets, **account.popen_arguments)
    options = connection.settings_dict["OPTIONS"]
    before = dict(options)

    def switch() -> None:
        wait_until(
            lambda: (sockets / ".s.PGSQL.6432").exists() or process.poll() is not None, 20, "the pooler"
        )
        reconnect()
        options.update(host=str(sockets), port="6432")

    try:
        yield switch
    finally:
        reconnect()
        connection.settings_dict["OPTIONS"] = before
        process.terminate()
        process.wait(20)


def test_settings_that_do_not_suit_a_pooler(pooled: Callable[[], None], settings: Any) -> None:
    alias = connections["default"].settings_dict
    alias["CONN_MAX_AGE"], age = 600, alias["CONN_MAX_AGE"]
    try:
        assert found("pooler") == [], "a direct connection may be kept"
        pooled()
        assert len(found("pooler")) == 3
        assert "= 0" in one("pooler", "CONN_MAX_AGE is 600").cure
        assert "= True" in one("pooler", "DISABLE_SERVER_SIDE_CURSORS").cure
        assert "LISTEN_DATABASE" in one("pooler", "NOTIFY").cure
        alias["CONN_MAX_AGE"], alias["DISABLE_SERVER_SIDE_CURSORS"] = 0, True
        settings.PGJOBS = {"LISTEN_DATABASE": "default"}
        assert found("pooler") == []
        alias["OPTIONS"]["server_side_binding"] = True
        assert "prepared on one server session" in one("pooler").what
    finally:
        alias["CONN_MAX_AGE"], alias["DISABLE_SERVER_SIDE_CURSORS"] = age, False


def test_the_connections_of_workers_are_the_poolers_business(pooled: Callable[[], None]) -> None:
    run("ALTER ROLE CURRENT_USER CONNECTION LIMIT 50")
    try:
        make_worker("large", slots=500)
        assert len(found("connections")) == 1
        pooled()
        assert found("connections") == []
    finally:
        run("ALTER ROLE CURRENT_USER CONNECTION LIMIT -1", "DELETE FROM pgjobs_worker")
