"""``manage.py pgjobs_release``: the verb of that name, from a shell."""

from __future__ import annotations

from pgjobs.management.verbs import VerbCommand
from pgjobs.queue import control as jobs


class Command(VerbCommand):
    """Take running jobs from a holder that is lost or stuck; they are claimable at once."""

    help = (
        "Take running jobs from a holder that is lost or stuck; they are claimable at once. A handler that still runs "
        "is not killed, and can change nothing."
    )
    verbs = {"job": jobs.release}
