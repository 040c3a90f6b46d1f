"""Fixtures of the whole suite: a real PostgreSQL, found or started once, and real worker processes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.backends.signals import connection_created

from example_project.postgres import EmbeddedPostgres, PostgresUnavailable, database_url, find_binaries
from tests.support import own_database
from tests.support.database import COPIED_KEYS, point_at
from tests.support.environment import child_environment
from tests.support.workers import Spawner

# A backend whose client was killed in mid-statement ends within half a second, not when its statement does;
# otherwise its locks would hold up the flush after the test.
SERVER_SETTINGS = {"client_connection_check_interval": "500ms"}


PREPARED = os.environ.get("PGJOBS_TEST_PREPARE", "") not in ("", "0")
if PREPARED:
    # As with Django's OPTIONS["prepare_threshold"]: whatever pgjobs sends is prepared, and its parameters travel apart.
    def prepare_everything(connection: Any, **_: Any) -> None:
        if connection.vendor == "postgresql":
            connection.connection.prepare_threshold = 0

    connection_created.connect(prepare_everything)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if own_database.ON:
        own_database.allow_every_database(items)
    if PREPARED:
        for item in items:
            if item.get_closest_marker("unprepared"):
                item.add_marker(pytest.mark.skip("every session of this run keeps statements"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of the suite's server. Started when first asked for: tests without a database need none."""
    with database_url(durable=False, settings=SERVER_SETTINGS) as url:
        yield url


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, postgres_url: str
) -> None:
    """Turns Django's connection to `postgres_url`. TEST stays as it is: xdist's suffix is in it."""
    for connection in connections.all():
        name = connection.settings_dict["NAME"] or "pgjobs"
        point_at(connection.settings_dict, postgres_url)
        connection.settings_dict["NAME"] = name


@pytest.fixture
def media_root(settings: Any, tmp_path: Path) -> Path:
    """An empty MEDIA_ROOT of the test's own, which its workers share."""
    folder = tmp_path / "media"
    folder.mkdir()
    settings.MEDIA_ROOT = str(folder)
    return folder


@pytest.fixture
def worker_env(transactional_db: None) -> Callable[[], dict[str, str]]:
    """Gives the environment in which a child process works on this test's database.

    Transactional: another process sees only what is committed.
    """
    return child_environment


@pytest.fixture
def spawn_workers(worker_env: Callable[[], dict[str, str]], tmp_path: Path) -> Iterator[Spawner]:
    """Starts `manage.py runworkers` on this test's database; see Spawner.

    Depends on `transactional_db` (by `worker_env`), so the workers are dead before the tables are emptied:
    TRUNCATE would wait for their locks.
    """
    spawner = Spawner(worker_env, tmp_path)
    try:
        yield spawner
    finally:
        spawner.kill_all()


class OwnServer:
    """A server that one test may stop and start; Django's connection means a migrated database on it."""

    def __init__(self, server: EmbeddedPostgres, spawn_workers: Spawner) -> None:
        self.server = server
        self.spawn_workers = spawn_workers

    def reconnect(self) -> None:
        """Drops this process's connection, which an outage has broken; the next query opens a new one."""
        connections["default"].close()

    def make_read_only(self, whether: bool) -> None:
        """As a server is for a while in a failover: new and old sessions of others refuse to write."""
        with connections["default"].cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            value = "on" if whether else "off"
            cursor.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            cursor.execute("SELECT pg_reload_conf()")


@pytest.fixture
def own_server(request: pytest.FixtureRequest, django_db_blocker: Any, tmp_path: Path) -> Iterator[OwnServer]:
    """A private, durable server for tests of outages. Excludes `db`, which means the shared one."""
    if {"db", "transactional_db"} & set(request.fixturenames) or request.node.get_closest_marker("django_db"):
        raise pytest.UsageError(
            f"{request.node.nodeid}: own_server and db (or the mark django_db) exclude each other."
        )
    try:
        binaries = find_binaries(prefer_system=os.environ.get("PGJOBS_TEST_POSTGRES") == "system")
    except PostgresUnavailable as missing:
        pytest.skip(str(missing))
    connection = connections["default"]
    before = {key: connection.settings_dict[key] for key in COPIED_KEYS if key in connection.settings_dict}
    with EmbeddedPostgres(durable=True, binaries=binaries, settings=SERVER_SETTINGS) as server:
        spawner = Spawner(child_environment, tmp_path)
        with django_db_blocker.unblock():
            try:
                connection.close()
                point_at(connection.settings_dict, server.create_database("pgjobs"))
                call_command("migrate", verbosity=0, interactive=False)
                yield OwnServer(server, spawner)
            finally:
                spawner.kill_all()
                connections.close_all()
                connection.settings_dict.update(before)
