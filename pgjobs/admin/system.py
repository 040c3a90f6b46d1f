"""System: whether the database side is healthy, and whether the other pages can be trusted."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from typing import Any

import django
import psycopg
from django.http import HttpRequest

from pgjobs import __version__, redaction
from pgjobs.admin import systemchecks
from pgjobs.admin.ages import in_words
from pgjobs.admin.frames import ListPage
from pgjobs.admin.joblist import LedToJobAdmin
from pgjobs.admin.limits import Panel, panel
from pgjobs.admin.systemchecks import Check, Look
from pgjobs.conf import Settings, get_settings
from pgjobs.doctor.findings import Patient, Thresholds, megabytes
from pgjobs.doctor.indexes import sizes
from pgjobs.doctor.project import behind_pooler
from pgjobs.doctor.tables import tables
from pgjobs.queue import rights

_REVEAL = rights.right("job", "reveal").permission


class SystemAdmin(ListPage, LedToJobAdmin):
    """Checks in the place of a list of rows."""

    view_permission = "pgjobs.view_system"
    list_template = "pgjobs/admin/system.html"

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """The checks, and what a person would ask next."""
        patient = Patient(get_settings().database, Thresholds())
        seen = systemchecks.look()
        may_see = request.user.has_perm(_REVEAL)
        found = systemchecks.checks(patient, seen, may_see_statements=may_see)
        server = panel(lambda: _server(patient), seconds=systemchecks.SECONDS)
        shown: dict[str, Any] = {
            "checks": found,
            "counts": systemchecks.counts(found),
            "server": server,
            "versions": _versions(seen),
            "tables": panel(lambda: _tables(patient), seconds=systemchecks.SECONDS),
            "settings": list(_settings()),
        }
        return shown | {"diagnostics": "\n".join(_as_text(shown))}


def _server(patient: Patient) -> list[tuple[str, str]]:
    """The database as this site reaches it."""
    server, settings = patient.server, get_settings()
    pooled = behind_pooler(patient)
    heard = "off: workers poll"
    if settings.notify:
        heard = f"on, by alias {settings.listen_database or settings.database}"
    timeout = patient.settings["statement_timeout"][1]
    return [
        ("Database", f"{server.database}, alias {settings.database}, as {server.role}"),
        ("PostgreSQL", server.version),
        ("Connection", "a pooler is in between" if pooled else "direct"),
        ("NOTIFY", heard),
        ("statement_timeout of new sessions", "none" if timeout == "0" else f"{timeout} ms"),
    ]


def _versions(seen: Panel) -> Panel:
    """What each live worker runs on, after this site."""
    here = {
        "who": "this site",
        "code": "-",
        "pgjobs": __version__,
        "python": platform.python_version(),
        "django": django.get_version(),
        "psycopg": psycopg.__version__,
    }
    if seen.problem:
        return Panel([here], seen.problem)
    look: Look = seen.value
    return Panel(
        [here]
        + [
            {
                "who": each.name,
                "code": each.code_version or "-",
                "pgjobs": each.version,
                **{name: each.runtime.get(name, "-") for name in ("python", "django", "psycopg")},
            }
            for each in look.processes.live
        ]
    )


def _tables(patient: Patient) -> list[dict[str, str]]:
    """Those that are there, by the statistics of the server."""
    indexes = sizes(patient)
    return [
        {
            "name": table.name,
            "rows": f"{max(table.estimated_rows, 0):,.0f}",
            "size": megabytes(table.size),
            "indexes": megabytes(indexes.get(table.name, 0)),
            "dead": f"{table.dead / (table.live + table.dead):.0%}" if table.dead else "0%",
            "vacuumed": "never"
            if table.vacuumed_ago is None
            else f"{in_words(timedelta(seconds=table.vacuumed_ago))} ago",
        }
        for table in tables(patient)
        if table.oid is not None and not table.partitioned
    ]


def _settings() -> Iterator[tuple[str, str, bool]]:
    """Each with its value, secrets hidden, and whether somebody set it."""
    given, default = get_settings(), Settings()
    for each in fields(Settings):
        value = getattr(given, each.name)
        shown = f"{value.__module__}.{value.__qualname__}" if callable(value) else repr(value)
        # By the built-in words alone: a project that shows the "token" of its payloads does not mean its own.
        if value and redaction.Rules().hides((each.name,)):
            shown = redaction.MARK
        yield each.name.upper(), shown, value != getattr(default, each.name)


def _as_text(shown: dict[str, Any]) -> Iterator[str]:
    """For an issue or a colleague: the page as plain text, without the statements of sessions."""
    yield "pgjobs: " + " · ".join(f"{count} {state}" for state, count in shown["counts"])
    yield from (f"{name}: {value}" for name, value in shown["server"].value or [])
    for check in shown["checks"]:
        yield from _lines(check)
    yield from (_row(row) for row in shown["versions"].value)
    yield from (_row(row) for row in shown["tables"].value or [])
    changed = [f"{name}={value}" for name, value, is_changed in shown["settings"] if is_changed]
    yield "Settings: " + (", ".join(changed) or "all by default")


def _lines(check: Check) -> Iterator[str]:
    for said in check.said:
        measure = f" ({said.measure})" if said.measure else ""
        yield f"{check.state:7} {check.title}: {said.what}{measure}"


def _row(row: dict[str, str]) -> str:
    first, *others = row.values()
    names = list(row)[1:]
    return f"{first}: " + ", ".join(f"{name} {value}" for name, value in zip(names, others, strict=True))
