"""``manage.py pgjobs_run_now``: make jobs due whose time has yet to come, from a shell."""

from __future__ import annotations

from pgjobs.management.verbs import VerbCommand
from pgjobs.queue import control as jobs


class Command(VerbCommand):
    """Make waiting jobs due whose time has yet to come."""

    help = "Make waiting jobs due whose time has yet to come."
    verbs = {"job": jobs.run_now}
