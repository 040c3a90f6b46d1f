"""``manage.py pgjobs_discard``: put jobs out of sight, or back, from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from pgjobs.management.verbs import VerbCommand
from pgjobs.queue import control as jobs


class Command(VerbCommand):
    """Put jobs that ended without success out of sight; with ``--restore`` back into it."""

    help = "Put jobs that ended without success out of sight, until retention takes them; with --restore back into it."
    verbs = {"job": jobs.discard}

    def add_arguments(self, parser: CommandParser) -> None:
        """Which way."""
        super().add_arguments(parser)
        parser.add_argument("--restore", action="store_true", help="bring discarded jobs back")

    def act(self, **options: Any) -> None:
        """One verb or the other."""
        self.verbs = {"job": jobs.restore if options["restore"] else jobs.discard}
        super().act(**options)
