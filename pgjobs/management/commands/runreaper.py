"""``manage.py runreaper``: take back the jobs of dead workers, and nothing else."""

from __future__ import annotations

import math
import queue
import signal
from functools import partial
from typing import Any

from django.core.management.base import CommandParser
from django.db import Error

from pgjobs import connections
from pgjobs.conf import get_settings
from pgjobs.management.operators import DatabaseCommand
from pgjobs.worker import clock, registration
from pgjobs.worker.reaper import Reaper
from pgjobs.worker.service import RECONNECT


class Command(DatabaseCommand):
    """Reap in a loop, or once."""

    help = "Take back jobs whose lease has lapsed. Every worker does this too, unless told --no-reaper."
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """Once, or how often."""
        parser.add_argument("--once", action="store_true", help="one pass, then end")
        parser.add_argument(
            "--interval",
            type=float,
            default=get_settings().reap_seconds,
            help=f"seconds between passes (default {get_settings().reap_seconds:g})",
        )

    def handle(self, *, once: bool, interval: float, **options: Any) -> None:
        """Pass after pass; an outage is waited out."""
        using = get_settings().database
        reaper = Reaper(interval, using=using)
        if once:
            self._report(reaper)
            return
        stop: queue.SimpleQueue[None] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.put(None))
        failures, tell = (
            0,
            partial(registration.reaped, registration.new_name("reaper"), interval, using=using),
        )
        told_at = -math.inf
        while True:
            try:
                self._report(reaper)
                if clock.now() - told_at >= get_settings().heartbeat_seconds:
                    tell()
                    told_at = clock.now()
                failures, pause = 0, reaper.seconds_until_due()
            except Error as error:
                if not connections.is_outage(error):
                    raise
                connections.drop(using)
                failures += 1
                pause = RECONNECT.delay(failures)
                if not failures & (failures - 1):
                    self.stderr.write(f"pgjobs: the database is away or refuses: {error}")
            try:
                stop.get(timeout=pause)
                return
            except queue.Empty:
                continue

    def _report(self, reaper: Reaper) -> None:
        reaped = reaper.run()
        if reaped:
            self.stdout.write(f"pgjobs: reaped, requeued {reaped.requeued}, dead {reaped.exhausted}")
