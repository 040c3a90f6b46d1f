"""Settings of the Django project that will hurt, above all behind a pooler."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from django.conf import settings as django_settings
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from pgjobs.conf import get_settings
from pgjobs.doctor.findings import WARNING, Finding, Patient, span
from pgjobs.queue.enqueue import CHANNEL

# A listening session is idle between two probes of its own; its latest statement is what tells it from others.
_LISTENERS = f"""
SELECT (SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND query ~ '^(LISTEN|NOTIFY) {CHANNEL}'),
       (SELECT extract(epoch FROM max(clock_timestamp() - started_at))::float8 FROM pgjobs_worker
        WHERE stopped_at IS NULL AND heartbeat_at > clock_timestamp() - make_interval(secs => %(silence)s)),
       pg_has_role('pg_read_all_stats', 'USAGE')
         OR (SELECT count(DISTINCT usename) = 1 FROM pg_stat_activity
             WHERE datname = current_database() AND backend_type = 'client backend')"""  # noqa: S608

_TRIGGER = "pgjobs_job_notify"
_TRIGGERS = f"""
SELECT tgenabled FROM pg_trigger
WHERE tgrelid = to_regclass('pgjobs_job') AND tgname = '{_TRIGGER}'"""  # noqa: S608

_STARTED_FOR = 15.0  # seconds that a new worker may take to connect its listener


_APPLIED = "SELECT name FROM django_migrations WHERE app = 'pgjobs'"


def behind_pooler(patient: Patient) -> bool:
    """Whether the session on the server is another than the one this client was told of."""
    connection: Any = connections[patient.using]
    server = patient.server  # first: it opens the connection that is asked next
    return bool(connection.connection.info.backend_pid != server.pid)


def probe_migrations(patient: Patient) -> Iterator[Finding]:
    """What this code expects of the tables, against what was done to them."""
    missing = sorted(_on_disk() - {name for (name,) in patient.ask(_APPLIED)})
    if missing:
        yield Finding(
            "unapplied-migrations",
            WARNING,
            f"Not applied to this database: {', '.join(missing)}.",
            f"{len(missing)} missing",
            f"Run manage.py migrate pgjobs --database {patient.using}.",
        )


def _on_disk() -> set[str]:
    module, _ = MigrationLoader.migrations_module("pgjobs")
    if module is None:  # the project has turned them off
        return set()
    found = pkgutil.iter_modules(import_module(module).__path__)
    return {each.name for each in found if not each.ispkg and each.name[0] not in "_~"}


def probe_debug(patient: Patient) -> Iterator[Finding]:
    """DEBUG keeps every statement of a request or command in memory."""
    if django_settings.DEBUG:
        yield Finding(
            "debug",
            WARNING,
            "DEBUG is True: Django keeps the statements of handlers in memory and shows settings to visitors.",
            "DEBUG = True",
            "Set DEBUG = False where workers run.",
        )


def probe_pooler(patient: Patient) -> Iterator[Finding]:
    """What Django's documentation asks for behind a pooler in transaction mode, and what LISTEN needs."""
    if not behind_pooler(patient):
        return
    for name, value, why, good in _unsuited(connections[patient.using].settings_dict):
        yield Finding(
            "pooler",
            WARNING,
            f"A pooler is in between, and {name} is {value!r}: {why}.",
            f"{name} = {value!r}",
            f"Set {name} = {good} in DATABASES[{patient.using!r}] (needed in transaction mode).",
        )
    if get_settings().notify and get_settings().listen_database is None:
        yield Finding(
            "pooler",
            WARNING,
            "A pooler is in between, and NOTIFY is on: workers cannot LISTEN through it in transaction mode.",
            "LISTEN_DATABASE = None",
            "Set PGJOBS['LISTEN_DATABASE'] to an alias that reaches the server directly, or PGJOBS['NOTIFY'] = False.",
        )


def _unsuited(settings: dict[str, Any]) -> Iterator[tuple[str, Any, str, str]]:
    """Name, value, why it hurts, and the value that does not."""
    options = settings.get("OPTIONS") or {}
    if settings.get("CONN_MAX_AGE") != 0:
        yield "CONN_MAX_AGE", settings.get("CONN_MAX_AGE"), "idle clients keep places of the pooler", "0"
    if not settings.get("DISABLE_SERVER_SIDE_CURSORS"):
        yield (
            "DISABLE_SERVER_SIDE_CURSORS",
            False,
            "iterator() loses its cursor between two statements",
            "True",
        )
    for name, why in (
        ("pool", "two pools in a row hold each other's places"),
        ("server_side_binding", "statements prepared on one server session are unknown to the next"),
    ):
        if options.get(name):
            yield f"OPTIONS[{name!r}]", options[name], why, "False"
    threshold = options.get("prepare_threshold")
    if threshold is not None:
        yield "OPTIONS['prepare_threshold']", threshold, "prepared statements get lost", "None"


def probe_listener(patient: Patient) -> Iterator[Finding]:
    """Workers that hear nothing poll; jobs then wait up to POLL_SECONDS."""
    settings = get_settings()
    if not settings.notify:
        return
    ((listeners, oldest, sees_all),) = patient.ask(_LISTENERS, silence=settings.lease_seconds)
    if sees_all and not listeners and (oldest or 0) > _STARTED_FOR:
        yield Finding(
            "no-listener",
            WARNING,
            "PGJOBS['NOTIFY'] is on and workers live, but no session listens: due jobs wait for the next poll.",
            f"for up to {span(oldest)}",
            "Give the workers a connection that does not go through a pooler in transaction mode, or set "
            "PGJOBS['NOTIFY'] = False; their log has the reason.",
        )


def probe_trigger(patient: Patient) -> Iterator[Finding]:
    """Without the trigger nobody is told of new jobs."""
    if not get_settings().notify:
        return
    found = patient.ask(_TRIGGERS)
    if not found:
        state, cure = (
            "missing",
            "Run the statements that `manage.py sqlmigrate pgjobs 0008_notify_trigger` prints.",
        )
    elif found[0][0] in ("D", b"D", "R", b"R"):  # psycopg gives the type "char" as bytes
        state, cure = "disabled", f"ALTER TABLE pgjobs_job ENABLE TRIGGER {_TRIGGER};"
    else:
        return
    yield Finding(
        "no-trigger",
        WARNING,
        f"The trigger {_TRIGGER} on pgjobs_job is {state}: new jobs wait for the next poll of a worker.",
        state,
        cure,
    )
