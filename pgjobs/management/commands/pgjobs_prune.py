"""``manage.py pgjobs_prune``: retention by hand or by cron, for set-ups whose workers do not do it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.management.operators import CANNOT_TELL, DatabaseCommand
from pgjobs.management.screen import clean
from pgjobs.queue import audit
from pgjobs.queue.partitions import create_months, drop_months, following
from pgjobs.queue.retention import Policy, retire
from pgjobs.workflows import retention as executions

_DAY = 86_400.0
_THIS_MONTH = "SELECT statement_timestamp() AT TIME ZONE 'UTC'"


class Command(DatabaseCommand):
    """One whole pass over what has ended."""

    help = (
        "Move ended jobs and executions that are old by the settings to the archive, or delete them, and drop months "
        "of the archive whose time is over. Every worker does this too, unless told --no-reaper."
    )
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """Each replaces a setting for this run."""
        add = parser.add_argument
        add("--days", type=float, help="age of ended jobs (default: JOB_RETENTION_SECONDS)")
        add(
            "--failed-days",
            type=float,
            help="of failed and dead ones (default: JOB_RETENTION_FAILED_SECONDS)",
        )
        add(
            "--retention", choices=["archive", "delete"], help="what becomes of them (default: JOB_RETENTION)"
        )
        add(
            "--archive-days",
            type=float,
            help="age of archived months (default: JOB_ARCHIVE_RETENTION_SECONDS)",
        )
        add(
            "--months-ahead",
            type=int,
            default=None,
            metavar="N",
            help="make the archive's partitions of this and the next N months, and nothing else",
        )

    def handle(self, *, months_ahead: int | None, **options: Any) -> None:
        """Prune, and say how much."""
        using = get_settings().database
        try:
            if months_ahead is not None:
                self._prepare(months_ahead, using)
            else:
                self._prune(_policy(options), using)
        except DatabaseError as error:
            raise CommandError(f"Stopped by the database: {clean(error)}", returncode=CANNOT_TELL) from error

    def _prune(self, policy: Policy, using: str) -> None:
        workflows = bool(executions.kept_seconds())
        audited = self._prune_audit(using)
        if policy.shortest is None and policy.archive_seconds is None and not workflows and not audited:
            raise CommandError(
                "Everything is kept: JOB_RETENTION_SECONDS is None. Set it in PGJOBS, or give --days."
            )
        done = {"archive": "archived", "delete": "deleted"}[policy.retention]
        self.stdout.write(f"jobs {done}: {retire(policy, using=using)}")
        if policy.archive_seconds is not None:
            gone = drop_months(policy.archive_seconds, using=using)
            self.stdout.write(f"months of the archive dropped: {', '.join(gone) or 'none'}")
        if workflows:
            self.stdout.write(f"executions {self._retire_executions(using)}")

    def _prune_audit(self, using: str) -> int:
        total = 0
        while gone := audit.prune(using=using):
            total += gone
        if total:
            self.stdout.write(f"operator actions deleted: {total}")
        return total

    def _retire_executions(self, using: str) -> str:
        total = 0
        while moved := executions.retire(using=using):
            total += moved
        return f"{'archived' if get_settings().workflow_retention == 'archive' else 'deleted'}: {total}"

    def _prepare(self, ahead: int, using: str) -> None:
        if not 0 <= ahead <= 120:
            raise CommandError(f"--months-ahead is {ahead}; give a number from 0 to 120.")
        ((today,),) = rows(using, _THIS_MONTH, {})
        wanted = [_month(today)]
        for _ in range(ahead):
            wanted.append(following(wanted[-1]))
        made = create_months(wanted, using=using)
        self.stdout.write(f"months of the archive made: {', '.join(made) or 'none, they are there'}")


def _policy(options: dict[str, Any]) -> Policy:
    """The settings, with what the command line gives in their place."""
    for name in ("days", "failed_days", "archive_days"):
        value = options[name]
        if value is not None and not 0 <= value < 100_000:
            raise CommandError(
                f"--{name.replace('_', '-')} is {value:g}; give a number of days from 0 to 100,000."
            )
    policy = Policy.from_settings()
    if options["days"] is not None:
        seconds = options["days"] * _DAY
        failed = seconds if get_settings().job_retention_failed_seconds is None else policy.failed_seconds
        policy = replace(policy, seconds=seconds, failed_seconds=failed)
    if options["failed_days"] is not None:
        policy = replace(policy, failed_seconds=options["failed_days"] * _DAY)
    if options["archive_days"] is not None:
        policy = replace(policy, archive_seconds=options["archive_days"] * _DAY)
    return replace(policy, retention=options["retention"] or policy.retention)


def _month(at: dt.datetime) -> str:
    return f"{at:%Y%m}"
