"""``manage.py pgjobs_cancel``: the verb of that name, from a shell."""

from __future__ import annotations

from pgjobs.management.verbs import VerbCommand
from pgjobs.queue import control as jobs
from pgjobs.workflows import control as executions


class Command(VerbCommand):
    """Stop jobs and executions. What runs loses its lease and can change nothing."""

    help = "Stop jobs and executions. What runs loses its lease and can change nothing."
    verbs = {"job": jobs.cancel, "execution": executions.cancel}
