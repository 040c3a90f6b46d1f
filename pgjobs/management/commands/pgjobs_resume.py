"""``manage.py pgjobs_resume``: the verb of that name, from a shell."""

from __future__ import annotations

from pgjobs.management.verbs import VerbCommand
from pgjobs.workflows import control as executions


class Command(VerbCommand):
    """Let paused executions go on from their history."""

    help = "Let paused executions go on from their history."
    verbs = {"execution": executions.resume}
