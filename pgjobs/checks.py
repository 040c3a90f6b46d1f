"""System checks. Those that talk to the database run only where Django allows it (``check --database``, ``migrate``).

What each id means stands in :data:`CATALOGUE`; docs/checks.md is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from pgjobs.conf import Settings, get_settings
from pgjobs.exceptions import SettingsError

TAG = "pgjobs"
OLDEST_SERVER = 15
OLDEST_PSYCOPG = (3, 2)
LARGEST_JSON_BYTES = 200_000_000
"""PostgreSQL refuses jsonb of about 256 MB; text grows on its way there."""
SMALLEST_ERROR_BYTES = 500
LONGEST_GRACE_SECONDS = 3_600
SHORTEST_AUDIT_DAYS = 7
MOST_ACTIVITY = 1_000_000
LARGEST_WORKFLOW = 100_000


@dataclass(frozen=True, slots=True)
class Rule:
    """One check: its rule for people, and what to do about a breach."""

    id: str
    rule: str
    hint: str

    def breach(self, message: str) -> CheckMessage:
        """The message of Django for one breach."""
        kind = Error if self.id.startswith("pgjobs.E") else Warning
        return kind(message, hint=self.hint, id=self.id)


_RULES = (
    Rule("pgjobs.E001", "PGJOBS holds known keys with usable values", "Correct or remove the key in PGJOBS."),
    Rule(
        "pgjobs.E002",
        "PGJOBS['DATABASE'] is an alias in DATABASES",
        "Set PGJOBS['DATABASE'] to one of the aliases, or add the alias to DATABASES.",
    ),
    Rule(
        "pgjobs.E003",
        "The database of pgjobs is PostgreSQL",
        "Use the engine django.db.backends.postgresql, or point PGJOBS['DATABASE'] at an alias that does.",
    ),
    Rule(
        "pgjobs.E004",
        "Django talks to PostgreSQL by psycopg 3.2 or newer",
        "Install it: pip install 'psycopg[binary]>=3.2'. Django prefers it to psycopg2 once it is there.",
    ),
    Rule(
        "pgjobs.E005",
        "HEARTBEAT_SECONDS is at most a third of LEASE_SECONDS",
        "Lower HEARTBEAT_SECONDS or raise LEASE_SECONDS, so that two lost heartbeats do not cost the lease.",
    ),
    Rule(
        "pgjobs.E006",
        "IDLE_POLL_SECONDS is not below POLL_SECONDS",
        "Raise IDLE_POLL_SECONDS or lower POLL_SECONDS: an idle worker polls less often, not more.",
    ),
    Rule(
        "pgjobs.E007",
        "CRASH_DELAY_CAP_SECONDS is not below CRASH_DELAY_SECONDS",
        "Raise CRASH_DELAY_CAP_SECONDS or lower CRASH_DELAY_SECONDS.",
    ),
    Rule(
        "pgjobs.E008",
        "MAX_PAYLOAD_BYTES and MAX_RESULT_BYTES are within what jsonb can hold",
        "Lower it to 200,000,000 or less. Store large data elsewhere and pass its key.",
    ),
    Rule(
        "pgjobs.E009",
        "MAX_ERROR_BYTES leaves room for a message and the ends of a traceback",
        "Raise MAX_ERROR_BYTES to 500 or more.",
    ),
    Rule(
        "pgjobs.E010",
        "The server is PostgreSQL 15 or newer",
        "Upgrade the server; PostgreSQL 15 to 18 are tested.",
    ),
    Rule(
        "pgjobs.E011",
        "The database does not use the encoding SQL_ASCII",
        "Make a database with ENCODING 'UTF8' TEMPLATE template0 and move the data: SQL_ASCII stores bytes "
        "unchecked, and text comes back as bytes.",
    ),
    Rule(
        "pgjobs.E012",
        "PGJOBS['LISTEN_DATABASE'] is None or an alias of PostgreSQL in DATABASES",
        "Add an alias with the server's own address to DATABASES, or remove LISTEN_DATABASE: polling is enough.",
    ),
    Rule(
        "pgjobs.E013",
        "WORKFLOW_WARN_CALLS is not above WORKFLOW_MAX_CALLS",
        "Lower WORKFLOW_WARN_CALLS or raise WORKFLOW_MAX_CALLS: an execution should be warned before it is paused.",
    ),
    Rule(
        "pgjobs.E020",
        "PGJOBS['HEALTH_ALLOW'] holds addresses and networks",
        "Write each as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32; a host name cannot be compared with an address.",
    ),
    Rule(
        "pgjobs.W001",
        "USE_TZ is True",
        "Set USE_TZ = True: times without a zone are ambiguous for an hour each year.",
    ),
    Rule(
        "pgjobs.W002",
        "SHUTDOWN_GRACE_SECONDS is at most an hour",
        "Lower it: what starts workers (systemd, Kubernetes) kills them sooner, and then an attempt is lost.",
    ),
    Rule(
        "pgjobs.W003",
        "The database can be reached",
        "Start the server, or correct the entry in DATABASES. The other checks of the database were left out.",
    ),
    Rule(
        "pgjobs.W004",
        "All migrations of pgjobs are applied",
        "Run: manage.py migrate (with --database for another alias than default). "
        "Shown by that very command, it goes away with it.",
    ),
    Rule(
        "pgjobs.W005",
        "The table pgjobs_job is where the connection looks for it",
        "Correct the search_path of the connection or of the role, or undo and repeat the migrations.",
    ),
    Rule(
        "pgjobs.W006",
        "The database uses the encoding UTF8",
        "Make a database with ENCODING 'UTF8' TEMPLATE template0: other encodings cannot store every text, "
        "so some payloads and errors will be refused.",
    ),
    Rule(
        "pgjobs.W007",
        "Routers send the app pgjobs to PGJOBS['DATABASE']",
        "Set DATABASE_ROUTERS = ['pgjobs.routers.PgJobsRouter'], or answer for the app label pgjobs in your own.",
    ),
    Rule(
        "pgjobs.W008",
        "AUDIT_DAYS is at least 7",
        "Raise AUDIT_DAYS, or set it to None to keep the audit for ever: a week is soon over when an incident is "
        "looked into.",
    ),
    Rule(
        "pgjobs.W009",
        "WORKFLOW_MAX_CALLS and WORKFLOW_MAX_GATHER are at most 100,000",
        "Lower it. Each turn replays all calls of its execution, and a gather is one transaction: use "
        "ctx.continue_as_new, and gather in parts.",
    ),
    Rule(
        "pgjobs.W010",
        "ACTIVITY_ROWS is at most 1,000,000",
        "Lower it. The record of what happened is for people to read; figures over time are in pgjobs_minute, and who "
        "did what is in the audit.",
    ),
    Rule(
        "pgjobs.W011",
        "Permissions that workflows ask for in ctx.approval exist",
        "Correct the name, or declare the permission in Meta.permissions of a model and run makemigrations and "
        "migrate: until then nobody but a superuser can decide.",
    ),
)

CATALOGUE = {rule.id: rule for rule in _RULES}
"""Every check by its id."""


@register(TAG)
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Settings alone: nothing is imported or connected."""
    found = [] if django_settings.USE_TZ else [_breach("W001", "USE_TZ is False.")]
    try:
        settings = get_settings()
    except SettingsError as error:
        return [*found, _breach("E001", str(error))]
    checked = (_clocks, _sizes, _networks, _workflows)
    return [*found, *(message for part in checked for message in part(settings))]


@register(TAG)
def check_driver(**kwargs: Any) -> list[CheckMessage]:
    """Alias, engine and driver, without a connection."""
    settings = _usable_settings()
    if settings is None:
        return []
    if settings.database not in connections:
        known = ", ".join(sorted(connections))
        return [_breach("E002", f"PGJOBS['DATABASE'] is {settings.database!r}; DATABASES has: {known}.")]
    try:
        connection = connections[settings.database]
    except ImproperlyConfigured as error:
        return [_breach("E003", f"The engine of database {settings.database!r} cannot be loaded: {error}")]
    if connection.vendor != "postgresql":
        return [
            _breach("E003", f"Database {settings.database!r} is {connection.display_name}, not PostgreSQL.")
        ]
    return [*_driver(connection), *_listening(settings), *_routing(settings.database)]


@register(Tags.database)
def check_database(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Server, encoding and tables. A database that does not answer is a warning, never an exception.

    Nothing here that ``migrate`` cures is an error: Django runs these checks before it migrates.
    """
    settings = _usable_settings()
    if settings is None or settings.database not in (databases or ()) or settings.database not in connections:
        return []
    connection = connections[settings.database]
    if connection.vendor != "postgresql":
        return []
    try:
        found = [message for part in _DATABASE_PARTS for message in part(connection)]
        return [*found, *_permissions(databases or ())]
    except DatabaseError as error:
        text = " ".join(str(error).split())
        return [_breach("W003", f"Database {settings.database!r} could not be read: {text}")]


def _usable_settings() -> Settings | None:
    """None when they cannot be read; E001 says so."""
    try:
        return get_settings()
    except SettingsError:
        return None


def _clocks(settings: Settings) -> Iterator[CheckMessage]:
    lease, beat = settings.lease_seconds, settings.heartbeat_seconds
    if beat > lease / 3:
        yield _breach(
            "E005", f"HEARTBEAT_SECONDS is {beat:g} with LEASE_SECONDS {lease:g}; at most {lease / 3:g}."
        )
    poll, idle = settings.poll_seconds, settings.idle_poll_seconds
    if idle < poll:
        yield _breach("E006", f"IDLE_POLL_SECONDS is {idle:g} with POLL_SECONDS {poll:g}.")
    delay, cap = settings.crash_delay_seconds, settings.crash_delay_cap_seconds
    if cap < delay:
        yield _breach("E007", f"CRASH_DELAY_CAP_SECONDS is {cap:g} with CRASH_DELAY_SECONDS {delay:g}.")
    if settings.shutdown_grace_seconds > LONGEST_GRACE_SECONDS:
        yield _breach("W002", f"SHUTDOWN_GRACE_SECONDS is {settings.shutdown_grace_seconds:g}; at most 3600.")

    if settings.audit_days is not None and settings.audit_days < SHORTEST_AUDIT_DAYS:
        yield _breach("W008", f"AUDIT_DAYS is {settings.audit_days:g}; at least {SHORTEST_AUDIT_DAYS}.")
    if settings.activity_rows > MOST_ACTIVITY:
        yield _breach("W010", f"ACTIVITY_ROWS is {settings.activity_rows:,}; at most {MOST_ACTIVITY:,}.")


def _sizes(settings: Settings) -> Iterator[CheckMessage]:
    for key in ("MAX_PAYLOAD_BYTES", "MAX_RESULT_BYTES"):
        size = getattr(settings, key.lower())
        if size > LARGEST_JSON_BYTES:
            yield _breach("E008", f"{key} is {size:,}; at most {LARGEST_JSON_BYTES:,}.")
    if settings.max_error_bytes < SMALLEST_ERROR_BYTES:
        yield _breach(
            "E009", f"MAX_ERROR_BYTES is {settings.max_error_bytes}; at least {SMALLEST_ERROR_BYTES}."
        )


def _workflows(settings: Settings) -> Iterator[CheckMessage]:
    warn, most = settings.workflow_warn_calls, settings.workflow_max_calls
    if warn > most:
        yield _breach("E013", f"WORKFLOW_WARN_CALLS is {warn:,} with WORKFLOW_MAX_CALLS {most:,}.")
    for key in ("WORKFLOW_MAX_CALLS", "WORKFLOW_MAX_GATHER"):
        if (size := getattr(settings, key.lower())) > LARGEST_WORKFLOW:
            yield _breach("W009", f"{key} is {size:,}; at most {LARGEST_WORKFLOW:,}.")


def _networks(settings: Settings) -> Iterator[CheckMessage]:
    for text in settings.health_allow:
        try:
            ip_network(text, strict=False)
        except ValueError as error:
            yield _breach("E020", f"PGJOBS['HEALTH_ALLOW'] holds {text!r}: {error}.")


def _driver(connection: Any) -> Iterator[CheckMessage]:
    driver = connection.Database
    version = driver.__version__.split(" ")[0]
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if driver.__name__ != "psycopg" or numbers < OLDEST_PSYCOPG:
        yield _breach("E004", f"The driver is {driver.__name__} {version}.")


def _listening(settings: Settings) -> Iterator[CheckMessage]:
    alias = settings.listen_database
    if alias is None:
        return
    if alias not in connections:
        known = ", ".join(sorted(connections))
        yield _breach("E012", f"PGJOBS['LISTEN_DATABASE'] is {alias!r}; DATABASES has: {known}.")
    elif connections[alias].vendor != "postgresql":
        yield _breach("E012", f"Database {alias!r} is {connections[alias].display_name}, not PostgreSQL.")


def _routing(using: str) -> Iterator[CheckMessage]:
    from pgjobs.queue.models import Job

    written = router.db_for_write(Job)
    if written != using:
        yield _breach("W007", f"PGJOBS['DATABASE'] is {using!r}; the routers send pgjobs to {written!r}.")
    elif not router.allow_migrate_model(using, Job):
        yield _breach("W007", f"The routers do not let pgjobs migrate on {using!r}, its PGJOBS['DATABASE'].")


def _server(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int / 10000")
        (version,) = cursor.fetchone()
    if version < OLDEST_SERVER:
        yield _breach("E010", f"The server of database {connection.alias!r} is PostgreSQL {version}.")


def _encoding(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        # As a number, since under SQL_ASCII a name may come back as bytes. 0 is SQL_ASCII, 6 is UTF8.
        cursor.execute("SELECT encoding FROM pg_database WHERE datname = current_database()")
        (encoding,) = cursor.fetchone()
    if encoding == 0:
        yield _breach("E011", f"Database {connection.alias!r} has the encoding SQL_ASCII.")
    elif encoding != 6:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_encoding_to_char(%s)", [encoding])
            (name,) = cursor.fetchone()
        yield _breach("W006", f"Database {connection.alias!r} has the encoding {name}.")


def _migrations(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    loader = MigrationLoader(connection, load=False)
    loader.load_disk()
    on_disk = {name for app, name in loader.disk_migrations if app == "pgjobs"}
    applied = {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "pgjobs"}
    missing = sorted(on_disk - applied)
    if missing:
        yield _breach("W004", f"Not applied to database {connection.alias!r}: {', '.join(missing)}.")
    elif not _table_is_found(connection):
        yield _breach("W005", f"Database {connection.alias!r} has no table pgjobs_job on its search_path.")


def _table_is_found(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('pgjobs_job') IS NOT NULL")
        return bool(cursor.fetchone()[0])


def _permissions(databases: Sequence[str]) -> Iterator[CheckMessage]:
    """What the text of the code says. Where it cannot be told from that, pgjobs_why and the approval's page tell."""
    from pgjobs.workflows.deciders import unknown_permissions
    from pgjobs.workflows.registry import workflows

    if not apps.is_installed("django.contrib.auth"):
        return
    table = apps.get_model("auth", "Permission")
    alias = router.db_for_read(table)
    if alias not in databases or table._meta.db_table not in connections[alias].introspection.table_names():
        return
    for definition in workflows.entries():
        for why in unknown_permissions(definition).values():
            yield _breach("W011", f"Workflow {definition.workflow_name!r} asks for a decision, and {why}.")


_DATABASE_PARTS: tuple[Callable[[BaseDatabaseWrapper], Iterator[CheckMessage]], ...] = (
    _server,
    _encoding,
    _migrations,
)


def _breach(number: str, message: str) -> CheckMessage:
    return CATALOGUE[f"pgjobs.{number}"].breach(message)
