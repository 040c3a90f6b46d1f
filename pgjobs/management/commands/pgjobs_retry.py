"""``manage.py pgjobs_retry``: the verb of that name, from a shell."""

from __future__ import annotations

from pgjobs.management.verbs import VerbCommand
from pgjobs.queue import control as jobs
from pgjobs.workflows import control as executions


class Command(VerbCommand):
    """Send jobs and executions that ended without success back to work, with their history kept."""

    help = "Send jobs and executions that ended without success back to work, with their history kept."
    verbs = {"job": jobs.retry, "execution": executions.retry}
