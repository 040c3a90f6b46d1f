"""Which pages are taken, and what must be on them."""

from __future__ import annotations

from example_project.screenshots.camera import Shot
from example_project.screenshots.night import Night

ROOT = "/admin/pgjobs"


def of(night: Night) -> list[Shot]:
    """The main pages, as that night left them."""
    return [
        Shot("overview", f"{ROOT}/overview/", "NO_WORKER"),
        Shot("errors", f"{ROOT}/errorgroup/?state=all", "ChargeDeclined"),
        Shot("error", f"{ROOT}/errorgroup/{night.known}/change/", "by ana"),
        Shot("running", f"{ROOT}/runningjob/", "imports.load"),
        Shot("jobs", f"{ROOT}/job/", "mail.send"),
        Shot("job", f"{ROOT}/job/{night.dead}/change/", "ChargeDeclined"),
        Shot("why", f"{ROOT}/job/{night.waiting}/change/", "Why is it not running?"),
        Shot("queues", f"{ROOT}/queue/", "reports"),
        Shot("workers", f"{ROOT}/worker/", "silent"),
        Shot("workflow", f"{ROOT}/execution/{night.execution}/change/", "apply fix"),
        Shot("waiting", f"{ROOT}/execution/{night.order}/change/", "Why does it not go on?"),
        Shot("approval", f"{ROOT}/wait/{night.approval}/change/", "Approve"),
        Shot("bulk", f"{ROOT}/job/bulk/?status=dead&queue=billing&verb=retry", "48 jobs"),
        Shot("tasks", f"{ROOT}/tasktype/", "billing.charge"),
        Shot("task", f"{ROOT}/tasktype/billing.charge/change/", "Pause everywhere"),
        Shot("activity", f"{ROOT}/activity/", "jobs of billing.charge are dead"),
        Shot("audit", f"{ROOT}/operatoraction/", "INC-221"),
        Shot("system", f"{ROOT}/system/", "copy diagnostics"),
        Shot("phone", f"{ROOT}/overview/", "NO_WORKER", phone=True),
    ]
