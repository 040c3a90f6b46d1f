"""All probes, each on its own: what one cannot read does not keep the others from looking."""

from __future__ import annotations

from django.db import DatabaseError, transaction

from pgjobs.conf import get_settings
from pgjobs.connections import OUTAGE, sqlstate
from pgjobs.doctor.findings import NOTE, Finding, Patient, Probe, Report, Severity, Thresholds
from pgjobs.doctor.indexes import probe_indexes
from pgjobs.doctor.project import probe_debug, probe_listener, probe_pooler, probe_trigger
from pgjobs.doctor.server import probe_connections, probe_settings, probe_writable
from pgjobs.doctor.sessions import (
    probe_notifications,
    probe_prepared,
    probe_slots,
    probe_snapshots,
    probe_standbys,
    probe_visibility,
)
from pgjobs.doctor.tables import probe_tables
from pgjobs.doctor.work import (
    probe_leases,
    probe_retention,
    probe_turns,
    probe_unknown,
    probe_unknown_workflows,
    probe_unserved,
    probe_workers,
)

PROBES: tuple[Probe, ...] = (
    probe_writable,
    probe_unserved,
    probe_leases,
    probe_workers,
    probe_unknown,
    probe_unknown_workflows,
    probe_turns,
    probe_snapshots,
    probe_prepared,
    probe_slots,
    probe_standbys,
    probe_tables,
    probe_indexes,
    probe_settings,
    probe_connections,
    probe_pooler,
    probe_listener,
    probe_trigger,
    probe_notifications,
    probe_debug,
    probe_retention,
    probe_visibility,
)

STATEMENT_TIMEOUT = "5s"
"""Longest that one probe may keep the server busy."""

_GENERAL = "SELECT current_database(), current_setting('server_version'), statement_timestamp()"


def examine(*, thresholds: Thresholds | None = None) -> Report:
    """Look at everything and change nothing; the worst findings come first.

    Raises what Django raises when the database cannot be reached.
    """
    patient = Patient(get_settings().database, thresholds or Thresholds())
    ((database, server, at),) = patient.ask(_GENERAL)
    report = Report(database, server, at)
    for probe in PROBES:
        report.findings += _look(probe, patient)
    order = list(Severity)
    report.findings.sort(key=lambda finding: order.index(finding.severity))
    return report


def _look(probe: Probe, patient: Patient) -> list[Finding]:
    try:
        with transaction.atomic(using=patient.using):
            patient.ask(
                "SELECT set_config('statement_timeout', %(timeout)s, true)", timeout=STATEMENT_TIMEOUT
            )
            return list(probe(patient))
    except DatabaseError as error:
        if isinstance(error, OUTAGE) and not sqlstate(error).startswith("57014"):
            raise
        part = probe.__name__.removeprefix("probe_")
        return [
            Finding(
                "not-examined",
                NOTE,
                f"The part {part!r} could not be looked at: {' '.join(str(error).split())}",
                sqlstate(error),
                "Run it as a role that is a member of pg_monitor and may read the tables of pgjobs.",
            )
        ]
