"""A table with something of everything, for tests that go to every page or try every verb."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from django.contrib import admin
from django.db.models.functions import Now

from pgjobs.bulk.control import plan
from pgjobs.models import BulkOperation, Execution, Job, Wait, Worker
from pgjobs.queue import pauses
from tests.browser.places import listed, page_of
from tests.faces.rows import make_job, make_worker
from tests.workflows.rows import approval, execution, step

SECRET = "hush-4711-hush"
FINGERPRINT = "f" * 40
_FAILED = {
    "attempt": 1,
    "kind": "error",
    "type": "ChargeDeclined",
    "message": "ChargeDeclined: card refused " + "again " * 20,
    "traceback": 'Traceback:\n  File "/srv/shop/pay.py", line 7, in charge\n    raise\nChargeDeclined: refused\n',
    "worker": "host.1.abc",
}


@dataclass
class Scene:
    """Rows in the states that verbs apply to, and where all of it is shown."""

    jobs: dict[str, Job] = field(default_factory=dict)
    flows: dict[str, Execution] = field(default_factory=dict)
    bulks: dict[str, BulkOperation] = field(default_factory=dict)
    asked: list[Wait] = field(default_factory=list)
    worker: Worker | None = None

    @property
    def lists(self) -> list[str]:
        """Addresses of the pages of whole models."""
        names = [
            model._meta.model_name for model in admin.site._registry if model._meta.app_label == "pgjobs"
        ]
        assert len(names) >= 12
        return [listed(str(name)) for name in names]

    @property
    def kinds(self) -> list[str]:
        """A page of each kind of row."""
        rows = [self.jobs["dead"], self.jobs["ready"], self.worker, self.flows["waiting"], self.asked[0]]
        rows += [self.bulks["running"]]
        return [*map(page_of, rows), page_of("default", "queue"), page_of(FINGERPRINT, "errorgroup")]

    @property
    def pages(self) -> list[str]:
        """These, and the pages of all rows."""
        rows = [*self.jobs.values(), self.worker, *self.flows.values(), *self.asked, *self.bulks.values()]
        named = [page_of("default", "queue"), page_of(FINGERPRINT, "errorgroup")]
        return [*self.lists, *map(page_of, rows), *named]

    @property
    def forms(self) -> list[str]:
        """Addresses that ask before something is done; viewers are not let in."""
        job, flow = listed("job"), f"{listed('execution')}{self.flows['waiting'].pk}"
        return [
            f"{job}bulk/?status=dead",
            f"{job}{self.jobs['dead'].pk}/options/",
            f"{job}{self.jobs['dead'].pk}/discard/",
            f"{job}{self.jobs['lapsed'].pk}/release/",
            f"{job}{self.jobs['lapsed'].pk}/cancel/",
            *(f"{flow}/{verb}/" for verb in ("fork", "signal", "cancel")),
        ]


def set_up() -> Scene:
    """Committed rows: jobs, workflows, an approval, pauses and bulk operations; a queue that nobody serves."""
    served = ["default", "aside"]
    scene = Scene(worker=make_worker(rss_bytes=210_000_000, code_version="v141", queues=served))
    failed = {"errors": [_FAILED], "last_error": _FAILED["message"], "fingerprint": FINGERPRINT}
    failed |= {"error_class": "ChargeDeclined", "job_type": "jobsapp.echo"}
    scene.jobs = {
        "dead": make_job("dead", payload={"order": {"id": 2**60}, "api_key": SECRET}, **failed),
        "discarded": make_job("dead", discarded_at=Now(), **failed),
        "lapsed": make_job("running", lease_expires_at=Now() - timedelta(seconds=1)),
        "later": make_job(available_at=Now() + timedelta(hours=1)),
        "ready": make_job(queue="nobody"),
    }
    scene.flows = {name: execution(name) for name in ("waiting", "failed", "paused")}
    step(scene.flows["waiting"], 0)
    scene.asked = [approval(scene.flows["waiting"], due_in=3600, context={"sum": "1,204,331.10"})]
    for kind, name in ((pauses.QUEUE, "reports"), (pauses.TYPE, "jobsapp.slow")):
        pauses.pause(name, kind=kind, actor="ben", reason="database migration")
    for state in ("previewed", "running", "waiting", "paused"):
        made = plan("retry", {"status": "failed"}, actor="ben", reason="INC-221")
        BulkOperation.objects.filter(pk=made.pk).update(state=state, progress_at=Now())
        scene.bulks[state] = made
    return scene
