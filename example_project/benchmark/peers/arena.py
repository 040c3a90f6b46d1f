"""Databases of the contest on one server: one for each entrant to be copied from, and one for each turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from example_project.benchmark.ground import GroundRefused

PREFIX = "pgjobs_benchmark_"
MARK = "made by the benchmark command of pgjobs, which drops it"
LOCK = "SELECT pg_try_advisory_lock(hashtext(%s))"
OTHERS = """
    SELECT datname, shobj_description(oid, 'pg_database') FROM pg_database
    WHERE left(datname, length(%(prefix)s)) = %(prefix)s"""


class Arena:
    """Made by :func:`arena`."""

    def __init__(self, url: str, guard: psycopg.Connection) -> None:
        self._url = url
        self.guard = guard

    def url(self, name: str) -> str:
        """As libpq and the drivers built on it read it."""
        parts = urlsplit(self._url)
        # Put together by hand: urlunsplit drops the slashes of a URL without a host.
        query = f"?{parts.query}" if parts.query else ""
        return f"postgresql://{parts.netloc}/{PREFIX}{name}{query}"

    def create(self, name: str, template: str | None = None) -> str:
        """An empty database, or a copy of ``template``; its URL."""
        source = sql.Identifier(f"{PREFIX}{template}") if template else sql.Identifier("template0")
        self.guard.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(f"{PREFIX}{name}"), source)
        )
        self.guard.execute(
            sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(f"{PREFIX}{name}"), MARK)
        )
        return self.url(name)

    def drop(self, name: str) -> None:
        """With the sessions that are left in it."""
        self.guard.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(f"{PREFIX}{name}"))
        )

    def settle(self) -> None:
        """No checkpoint of earlier work to come, where we may ask for one now."""
        try:
            self.guard.execute("CHECKPOINT")
        except psycopg.errors.InsufficientPrivilege:
            return


@contextmanager
def arena(url: str) -> Iterator[Arena]:
    """Drop what a killed run left, hand the server out, and drop what this run made.

    Raises GroundRefused when another run is at it, or a database of such a name is somebody else's.
    """
    with psycopg.connect(url, autocommit=True, application_name=f"{PREFIX}guard") as guard:
        if guard.execute(LOCK, [MARK]).fetchone() != (True,):
            raise GroundRefused(
                "Another run of the benchmark uses this server. Wait for its end, or name another."
            )
        here = Arena(url, guard)
        _clear(here)
        try:
            yield here
        finally:
            _clear(here)


def _clear(here: Arena) -> None:
    for name, mark in here.guard.execute(OTHERS, {"prefix": PREFIX}).fetchall():
        if mark != MARK:
            raise GroundRefused(
                f"The database {name!r} was not made by this command, so it is left alone. Rename or drop it, or "
                "name another server with --database-url."
            )
        here.drop(name.removeprefix(PREFIX))
