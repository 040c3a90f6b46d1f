"""Which pages are taken, and what must be on them."""

from __future__ import annotations

from example_project.screenshots.camera import Shot
from example_project.screenshots.night import Night

ROOT = "/admin/pgjobs"


def of(night: Night) -> list[Shot]:
    """The main pages, as that night left them."""
    return [
        Shot("overview", f"{ROOT}/overview/", "NO_WORKER"),
        Shot("errors", f"{ROOT}/errorgroup/", "ChargeDeclined"),
        Shot("running", f"{ROOT}/runningjob/", "imports.load"),
        Shot("jobs", f"{ROOT}/job/", "mail.send"),
        Shot("job", f"{ROOT}/job/{night.dead}/change/", "ChargeDeclined"),
        Shot("why", f"{ROOT}/job/{night.waiting}/change/", "Why is it not running?"),
        Shot("queues", f"{ROOT}/queue/", "reports"),
        Shot("workers", f"{ROOT}/worker/", "silent"),
        Shot("workflow", f"{ROOT}/execution/{night.execution}/change/", "apply fix"),
        Shot("approval", f"{ROOT}/wait/{night.approval}/change/", "Approve"),
        Shot("bulk", f"{ROOT}/job/bulk/?status=dead&queue=billing&verb=retry", "48 jobs"),
        Shot("phone", f"{ROOT}/overview/", "NO_WORKER", phone=True),
    ]
