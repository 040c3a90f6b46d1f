"""All probes, each on its own: what one cannot read does not keep the others from looking."""

from __future__ import annotations

from django.db import DatabaseError, transaction

from pgjobs.conf import get_settings
from pgjobs.connections import OUTAGE, migration, sqlstate
from pgjobs.doctor.findings import CRITICAL, NOTE, Finding, Patient, Probe, Report, Severity, Thresholds
from pgjobs.doctor.parts import PARTS

STATEMENT_TIMEOUT = "5s"
"""Longest that one probe may keep the server busy."""


def examine(*, thresholds: Thresholds | None = None) -> Report:
    """Look at everything and change nothing; the worst findings come first.

    Raises what Django raises when the database cannot be reached.
    """
    patient = Patient(get_settings().database, thresholds or Thresholds())
    report = Report(patient.server.database, patient.server.version, patient.server.at)
    for part in PARTS:
        report.findings += _look(part.probe, patient)
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
        cure = migration(error, patient.using)
        return [
            Finding(
                "not-examined",
                CRITICAL if cure else NOTE,
                f"The part {part!r} could not be looked at: {' '.join(str(error).split())}",
                sqlstate(error),
                cure or "Run it as a role that is a member of pg_monitor and may read the tables of pgjobs.",
            )
        ]
