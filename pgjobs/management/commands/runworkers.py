"""``manage.py runworkers``: arguments to options, then the supervisor."""

from __future__ import annotations

import sys
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from pgjobs import connections
from pgjobs.conf import get_settings
from pgjobs.exceptions import SettingsError
from pgjobs.health.drained import left_behind
from pgjobs.management.screen import clean, harmless
from pgjobs.queue.names import unknown
from pgjobs.worker.kinds import known_kinds
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.probes import Probes
from pgjobs.worker.supervisor import Supervisor


class Command(BaseCommand):
    """Run workers until SIGTERM or Ctrl-C; a second one does not wait for running jobs."""

    help = (
        "Run worker processes. SIGTERM or Ctrl-C: finish what runs, hand back the rest. Twice: hand back now."
    )
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """Every option replaces a setting of PGJOBS for this run."""
        s = get_settings()
        add = parser.add_argument
        add("--queues", default="", help="comma-separated; default: all queues")
        add("--processes", type=int, help=f"worker processes (default {s.processes})")
        add("--concurrency", type=int, help=f"jobs at a time in each process (default {s.concurrency})")
        add(
            "--lease-seconds",
            type=float,
            help=f"life of a claim without renewal (default {s.lease_seconds:g})",
        )
        add("--heartbeat-seconds", type=float, help=f"between renewals (default {s.heartbeat_seconds:g})")
        add("--poll-seconds", type=float, help=f"longest wait unless notified (default {s.poll_seconds:g})")
        add(
            "--grace-seconds",
            type=float,
            help=f"for running jobs after SIGTERM (default {s.shutdown_grace_seconds:g})",
        )
        add("--drain", action="store_true", help="end when nothing is runnable, and say what is left")
        add(
            "--health-port", type=int, help="answer /live and /ready over HTTP at this port (0: any free one)"
        )
        add("--health-host", default="127.0.0.1", help="address to answer at (default 127.0.0.1)")
        add("--health-file", help="touch this file for as long as all workers are alive, for probes by exec")
        add("--no-reaper", action="store_true", help="leave lapsed leases to other workers or runreaper")

    def handle(self, **options: Any) -> None:
        """Run, and end with the supervisor's exit code."""
        queues = tuple(name.strip() for name in options["queues"].split(",") if name.strip())
        names = (
            "processes",
            "concurrency",
            "lease_seconds",
            "heartbeat_seconds",
            "poll_seconds",
            "grace_seconds",
        )
        try:
            given = {name: options[name] for name in names}
            worker_options = WorkerOptions.from_settings(
                **given, queues=queues, drain=options["drain"], reaper=not options["no_reaper"]
            )
        except SettingsError as error:
            raise CommandError(str(error)) from error
        if not known_kinds():
            raise CommandError(
                "No job types or workflows are registered, so there is nothing to work on. Declare them with @job in "
                "a jobs.py, or @workflow in a workflows.py, of an app in INSTALLED_APPS."
            )
        _check_tables(get_settings().database)
        self._doubt(queues)
        probes = Probes(options["health_port"], options["health_host"], options["health_file"])
        try:
            probes.open()
        except (OSError, OverflowError) as error:
            raise CommandError(
                f"Probes cannot be answered at --health-port {options['health_port']} of {options['health_host']}, "
                f"--health-file {options['health_file']}: {error}. Give a free port, an address of this host, and a "
                f"file that can be written."
            ) from error
        code = Supervisor(worker_options, probes).run()
        if options["drain"]:
            self._tell_what_is_left(queues)
        if code:
            sys.exit(code)

    def _tell_what_is_left(self, queues: tuple[str, ...]) -> None:
        try:
            self.stdout.write(harmless(left_behind(queues, using=get_settings().database)))
        except Error as error:
            self.stdout.write(f"The drain is over; what is left cannot be told: {clean(error)}")

    def _doubt(self, queues: tuple[str, ...]) -> None:
        """Queues that are new are served all the same: their jobs may come later."""
        try:
            doubts = [told for name in queues if (told := unknown("queue", name))]
        except Error:
            return
        for told in doubts:
            self.stderr.write(f"{harmless(told)} It is served all the same.")


_MISSING = """
SELECT name FROM unnest(%(tables)s::text[]) AS name WHERE to_regclass(quote_ident(name)) IS NULL ORDER BY name"""


def _check_tables(using: str) -> None:
    """Raise :class:`CommandError` when tables are missing. A database that is away is waited for by the workers."""
    tables = {model._meta.db_table for model in apps.get_app_config("pgjobs").get_models()}
    try:
        missing = [name for (name,) in connections.rows(using, _MISSING, {"tables": sorted(tables)})]
    except Error:
        return
    if missing:
        raise CommandError(
            f"Database {using!r} has no {', '.join(missing)}. Workers need the tables of this version of pgjobs: run "
            f"manage.py migrate --database {using}, then start them."
        )
