"""Where to measure: a server and a schema of one's own. What is made there, pgjobs' tables included, is dropped."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import sql

from example_project.postgres import EmbeddedPostgres

# A statement that was interrupted at its client goes on at the server, and the drop would wait for its locks.
END_SESSIONS = """
    SELECT pg_terminate_backend(holder.pid) FROM (
        SELECT DISTINCT held.pid FROM pg_locks AS held JOIN pg_class AS class ON class.oid = held.relation
        WHERE held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND class.relnamespace = to_regnamespace(%s) AND held.pid <> pg_backend_pid()
    ) AS holder"""
SCHEMES = ("postgres", "postgresql")


class GroundRefused(RuntimeError):
    """This database is not to be measured on; the text says why and what to do."""


def given_url(option: str | None) -> str | None:
    """The database that somebody named, by ``--database-url`` or DATABASE_URL; None for a server of one's own."""
    url = option or os.environ.get("DATABASE_URL") or None
    if url is not None and urlsplit(url).scheme not in SCHEMES:
        raise GroundRefused(
            f"The database URL begins with {urlsplit(url).scheme!r}; it must begin with postgres:// or "
            "postgresql://. Give --database-url, or unset DATABASE_URL to use a server of the command's own."
        )
    return url


@contextmanager
def server(given: str | None, database: str) -> Iterator[str]:
    """The URL that was given, or that of a new ``database`` on an embedded server with its durable settings on."""
    if given is not None:
        yield given
        return
    with EmbeddedPostgres(durable=True) as embedded:
        yield embedded.create_database(database)


@contextmanager
def own_schema(url: str, name: str) -> Iterator[str]:
    """Make the schema ``name`` and yield a URL whose sessions see nothing else; drop it with all that is in it.

    Left-overs of a run that was killed are dropped first. Raises GroundRefused when the schema is somebody
    else's, or in use by another run.
    """
    mark = f"made by the {name} command, which drops it"
    schema = sql.Identifier(name)
    drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema)
    with psycopg.connect(url, autocommit=True, application_name=f"{name}_guard") as guard:
        _require_mine(guard, name, mark)
        guard.execute(drop)
        guard.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        guard.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(schema, mark))
        try:
            yield seeing_only(url, name)
        finally:
            guard.execute(END_SESSIONS, [name])
            guard.execute(drop)


def seeing_only(url: str, schema: str) -> str:
    """``url`` with its search path set, so that every client of it, Django's migrations too, stays inside."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    query["options"] = f"{query.get('options', '')} -csearch_path={schema}".strip()
    # Put together by hand: urlunsplit drops the slashes of a URL without a host.
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{urlencode(query, safe='/', quote_via=quote)}"


def _require_mine(guard: psycopg.Connection, name: str, mark: str) -> None:
    locked = guard.execute("SELECT pg_try_advisory_lock(hashtext(%s))", [mark]).fetchone()
    if locked != (True,):
        raise GroundRefused(
            f"Another run uses the schema {name!r} of this database. Wait for its end, or name another database."
        )
    found = guard.execute(
        "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", [name]
    ).fetchone()
    if found is not None and found[0] != mark:
        raise GroundRefused(
            f"The schema {name!r} of this database was not made by this command, so it is left alone. Rename or "
            "drop it, or name another database with --database-url."
        )
