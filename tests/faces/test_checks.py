"""The system checks: each one provoked, none of them in the way of a sound project."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import load_backend

from pgjobs import checks, workflow
from pgjobs.workflows.registry import workflows
from tests.support.database import COPIED_KEYS

ELSEWHERE = "shop.aprove_refund"
DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "checks.md"


def ids(messages: list[Any]) -> list[str]:
    """The numbers of our own messages, in order."""
    return [message.id.removeprefix("pgjobs.") for message in messages if message.id.startswith("pgjobs.")]


def without_database() -> list[str]:
    return ids(django_checks.run_checks())


def with_database(alias: str = "default") -> list[str]:
    return ids(django_checks.run_checks(databases=[alias]))


@contextmanager
def second_database(engine: str = "django.db.backends.postgresql", **changes: Any) -> Iterator[Any]:
    """A connection of another name, by default to the same server, for as long as the block lasts."""
    given = connections["default"].settings_dict
    settings = {**given, **{key: given[key] for key in COPIED_KEYS}, "ENGINE": engine, **changes}
    wrapper = load_backend(engine).DatabaseWrapper(settings, "second")
    connections.settings["second"] = settings
    connections["second"] = wrapper
    try:
        yield wrapper
    finally:
        wrapper.close()
        del connections["second"]
        del connections.settings["second"]


@contextmanager
def database_encoded(encoding: str, locale: str = "C") -> Iterator[Any]:
    """A real database of that encoding, reached as `second`."""
    name = f"test_pgjobs_{encoding.lower()}"
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 "
            f"LOCALE_PROVIDER libc LC_COLLATE '{locale}' LC_CTYPE '{locale}'"
        )
    try:
        with second_database(NAME=name) as wrapper:
            yield wrapper
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def routed(settings: Any) -> Any:
    """The tables of pgjobs are where PGJOBS['DATABASE'] says."""
    settings.PGJOBS = {"DATABASE": "second"}
    settings.DATABASE_ROUTERS = ["pgjobs.routers.PgJobsRouter"]
    return settings


@pytest.fixture
def server(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The server of the tests without `db`, which would forbid a second connection."""
    with django_db_blocker.unblock():
        yield
        connections["default"].close()


@pytest.mark.django_db
def test_a_sound_project_hears_nothing() -> None:
    assert without_database() == []
    assert with_database() == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"LEASE_SECOND": 30}, "E001"),
        ({"LEASE_SECONDS": -1}, "E001"),
        ({"NOTIFY": "yes"}, "E001"),
        (["not a dict"], "E001"),
        ({"DATABASE": "elsewhere"}, "E002"),
        ({"LISTEN_DATABASE": ""}, "E001"),
        ({"LISTEN_DATABASE": "elsewhere"}, "E012"),
        ({"HEARTBEAT_SECONDS": 10.1}, "E005"),
        ({"LEASE_SECONDS": 9, "HEARTBEAT_SECONDS": 4}, "E005"),
        ({"POLL_SECONDS": 6}, "E006"),
        ({"CRASH_DELAY_SECONDS": 400}, "E007"),
        ({"MAX_PAYLOAD_BYTES": 2**28}, "E008"),
        ({"MAX_RESULT_BYTES": 2**28}, "E008"),
        ({"MAX_ERROR_BYTES": 499}, "E009"),
        ({"SHUTDOWN_GRACE_SECONDS": 3601}, "W002"),
        ({"AUDIT_DAYS": 6.5}, "W008"),
        ({"ACTIVITY_ROWS": 1_000_001}, "W010"),
        ({"WORKFLOW_WARN_CALLS": 101, "WORKFLOW_MAX_CALLS": 100}, "E013"),
        ({"WORKFLOW_MAX_CALLS": 100_001}, "W009"),
        ({"WORKFLOW_MAX_GATHER": 100_001}, "W009"),
        ({"HEALTH_ALLOW": ["10.0.0.0/8", "monitor.example"]}, "E020"),
    ],
)
def test_settings_that_cannot_be_meant(settings: Any, given: Any, found: str) -> None:
    settings.PGJOBS = given
    assert without_database() == [found]


@pytest.mark.parametrize(
    "given",
    [
        {"LEASE_SECONDS": 30, "HEARTBEAT_SECONDS": 10},
        {"LISTEN_DATABASE": "default"},
        {"LISTEN_DATABASE": None},
        {"LEASE_SECONDS": 3, "HEARTBEAT_SECONDS": 0.5},
        {"POLL_SECONDS": 5, "IDLE_POLL_SECONDS": 5},
        {"MAX_ERROR_BYTES": 500, "MAX_PAYLOAD_BYTES": 200_000_000, "SHUTDOWN_GRACE_SECONDS": 3600},
    ],
)
def test_settings_on_the_edge_are_allowed(settings: Any, given: Any) -> None:
    settings.PGJOBS = given
    assert without_database() == []


def test_two_breaches_are_two_messages(settings: Any) -> None:
    settings.PGJOBS = {"LEASE_SECONDS": 1, "MAX_ERROR_BYTES": 1}
    assert without_database() == ["E005", "E009"]


@pytest.mark.django_db
def test_unreadable_settings_are_reported_once_and_stop_the_rest(settings: Any) -> None:
    settings.PGJOBS = {"DATABSE": "default"}
    assert with_database() == ["E001"]
    (message,) = checks.check_settings()
    assert "'DATABSE'" in message.msg and "'DATABASE'" in message.msg


def test_times_without_a_zone(settings: Any) -> None:
    settings.USE_TZ = False
    assert without_database() == ["W001"]


def test_another_engine(server: None, settings: Any, tmp_path: Path) -> None:
    with second_database("django.db.backends.sqlite3", NAME=str(tmp_path / "other.db"), OPTIONS={}):
        settings.PGJOBS = {"DATABASE": "second"}
        assert with_database("second") == ["E003"]


def test_another_engine_to_listen_on(server: None, settings: Any, tmp_path: Path) -> None:
    with second_database("django.db.backends.sqlite3", NAME=str(tmp_path / "other.db"), OPTIONS={}):
        settings.PGJOBS = {"LISTEN_DATABASE": "second"}
        assert without_database() == ["E012"]


class SendsAway:
    """A router that keeps everything out of `second`, or lets rows in that it lets no table in for."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db != "second"


class SendsRows(SendsAway):
    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "second"


def test_a_database_that_no_router_leads_to(server: None, settings: Any) -> None:
    with second_database():
        settings.PGJOBS = {"DATABASE": "second"}
        (message,) = checks.check_driver()
        assert message.id == "pgjobs.W007" and "send pgjobs to 'default'" in message.msg
        settings.DATABASE_ROUTERS = [SendsRows()]
        (message,) = checks.check_driver()
        assert message.id == "pgjobs.W007" and "do not let pgjobs migrate on 'second'" in message.msg
        settings.DATABASE_ROUTERS = ["pgjobs.routers.PgJobsRouter"]
        assert without_database() == []


def test_an_engine_that_cannot_be_loaded(settings: Any) -> None:
    connections.settings["broken"] = {**connections["default"].settings_dict, "ENGINE": "no.such.engine"}
    try:
        settings.PGJOBS = {"DATABASE": "broken"}
        (message,) = checks.check_driver()
        assert message.id == "pgjobs.E003" and "no.such.engine" in message.msg
    finally:
        del connections.settings["broken"]


@pytest.mark.parametrize(("name", "version"), [("psycopg2", "2.9.10 (dt dec)"), ("psycopg", "3.1.19")])
def test_an_older_driver(monkeypatch: pytest.MonkeyPatch, name: str, version: str) -> None:
    driver = ModuleType(name)
    driver.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setattr(connections["default"], "Database", driver)
    (message,) = checks.check_driver()
    assert message.id == "pgjobs.E004" and message.msg == f"The driver is {name} {version.split()[0]}."


@pytest.mark.parametrize("version", ["3.2", "3.2.0", "3.10.1", "4.0.0.dev1"])
def test_a_newer_driver(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    driver = ModuleType("psycopg")
    driver.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setattr(connections["default"], "Database", driver)
    assert checks.check_driver() == []


@pytest.mark.django_db
def test_an_older_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "OLDEST_SERVER", 99)
    assert with_database() == ["E010"]
    assert without_database() == []


def test_a_database_without_an_encoding(server: None, routed: Any) -> None:
    with database_encoded("SQL_ASCII"):
        assert with_database("second") == ["E011", "W004"]


def test_a_database_of_a_narrow_encoding(server: None, routed: Any) -> None:
    with database_encoded("LATIN1"):
        assert with_database("second") == ["W006", "W004"]


def test_an_empty_database_is_told_to_migrate_and_can(server: None, routed: Any) -> None:
    with database_encoded("UTF8"):
        assert with_database("second") == ["W004"]
        call_command("migrate", database="second", verbosity=0, skip_checks=False)
        assert with_database("second") == []


@pytest.mark.django_db
def test_a_migration_that_is_missing_is_named() -> None:
    MigrationRecorder(connection).record_unapplied("pgjobs", "0002_admin_pages")
    (message,) = checks.check_database(databases=["default"])
    assert message.id == "pgjobs.W004" and "0002_admin_pages" in message.msg


@pytest.mark.django_db
def test_a_table_that_is_out_of_sight() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA aside")
        cursor.execute("ALTER TABLE pgjobs_job SET SCHEMA aside")
    assert with_database() == ["W005"]


@pytest.mark.parametrize("changes", [{"NAME": "no_such_database"}, {"HOST": "/nonexistent", "PORT": "1"}])
def test_a_database_that_does_not_answer_is_a_warning(
    server: None, routed: Any, changes: dict[str, str]
) -> None:
    with second_database(**changes):
        assert with_database("second") == ["W003"]


def test_nothing_connects_unless_django_says_so(settings: Any) -> None:
    """No `db` here: a connection would fail the test."""
    assert checks.check_database() == []
    assert checks.check_database(databases=[]) == []
    assert checks.check_database(databases=["another"]) == []
    assert without_database() == []


def test_each_check_is_registered_once() -> None:
    registry = django_checks.registry.registry
    everything = [*registry.registered_checks, *registry.deployment_checks]
    ours = [check for check in everything if check.__module__ == "pgjobs.checks"]
    names = sorted(check.__name__ for check in ours)
    assert names == ["check_database", "check_driver", "check_settings"]
    tagged = {check.__name__ for check in ours if django_checks.Tags.database in check.tags}
    assert tagged == {"check_database"}


def asks(ctx: Any) -> Any:
    """By a literal, by a name, and by what only a run could tell."""
    ctx.approval("one", permission="auth.chnage_user")
    ctx.approval("two", permission=ELSEWHERE)
    ctx.approval("three", permission="auth.change_user", groups=["x"])
    return ctx.approval("four", permission=f"{ELSEWHERE}s")


@pytest.mark.django_db
def test_permissions_that_workflows_misspell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "_by_name", {})
    workflow(name="tests.asks", version=1)(asks)
    found = django_checks.run_checks(databases=["default"])
    assert ids(found) == ["W011", "W011"] and without_database() == []
    assert found[0].msg == (
        "Workflow 'tests.asks' asks for a decision, and there is no permission 'auth.chnage_user' "
        "(did you mean 'auth.change_user'?)."
    )
    assert "'shop.aprove_refund'" in found[1].msg


def test_every_id_is_provoked_here() -> None:
    text = Path(__file__).read_text()
    assert [id for id in checks.CATALOGUE if f'"{id}"' not in text and f'"{id[7:]}"' not in text] == []


def test_the_document_says_what_the_code_says() -> None:
    rows = re.findall(r"^\| `(pgjobs\.[EW]\d{3})` \| (.+) \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert rows == [(rule.id, rule.rule, rule.hint) for rule in checks.CATALOGUE.values()]
