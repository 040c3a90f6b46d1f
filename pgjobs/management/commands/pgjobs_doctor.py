"""``manage.py pgjobs_doctor``: what is wrong with the database side of the queue, and what cures it."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from pgjobs.conf import get_settings
from pgjobs.doctor.examination import examine
from pgjobs.doctor.findings import CRITICAL, WARNING, Report
from pgjobs.health.phrases import many
from pgjobs.management.operators import CANNOT_TELL, FOUND, MISUSED, DatabaseCommand


class Command(DatabaseCommand):
    """Prints each finding with its cure; ends with exit code 1 when one is critical, and for nothing else."""

    wrong = MISUSED

    help = (
        "Examine the database of pgjobs: bloat, old snapshots, indexes, autovacuum, settings, workers, leases. Changes "
        "nothing. Exit code 1: a finding is critical; 2: wrong usage; 3: it cannot be examined."
    )
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """For people or for programs."""
        parser.add_argument("--json", action="store_true", help="print the whole report as one JSON object")

    def handle(self, **options: Any) -> None:
        """Examine and report."""
        try:
            report = examine()
        except DatabaseError as error:
            alias = get_settings().database
            raise CommandError(
                f"Database {alias!r} cannot be examined: {' '.join(str(error).split())} "
                f"Start the server, or correct DATABASES[{alias!r}].",
                returncode=CANNOT_TELL,
            ) from error
        if options["json"]:
            self.stdout.write(json.dumps(report.as_dict(), indent=2))
        else:
            self._print(report)
        critical = report.counts[CRITICAL]
        if critical:
            raise CommandError(f"{many(critical, 'critical finding')}.", returncode=FOUND)

    def _print(self, report: Report) -> None:
        self.stdout.write(
            f"Database {report.database}, PostgreSQL {report.server}, {report.at:%Y-%m-%d %H:%M:%S %Z}"
        )
        styles = {CRITICAL: self.style.ERROR, WARNING: self.style.WARNING}
        for finding in report.findings:
            style = styles.get(finding.severity, self.style.NOTICE)
            self.stdout.write(f"\n{style(finding.severity.value)} {finding.code}: {finding.what}")
            if finding.statement:
                self.stdout.write(f"  statement: {finding.statement}")
            self.stdout.write(f"  measure: {finding.measure}\n  cure: {finding.cure}")
        told = ", ".join(f"{count} {severity}" for severity, count in report.counts.items() if count)
        self.stdout.write(f"\n{told or 'Nothing found.'}")
