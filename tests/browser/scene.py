"""A table with something of everything, for tests that go to every page or try every verb."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from django.contrib import admin
from django.db.models.functions import Now

from pgjobs.bulk.control import plan
from pgjobs.models import Activity, BulkOperation, Execution, Job, Wait, Worker
from pgjobs.queue import acknowledging, pauses, rollups
from pgjobs.queue.rollups import Tally
from tests.browser.places import listed, page_of
from tests.faces.rows import make_job, make_worker
from tests.support.own_database import QUEUE
from tests.workflows.rows import approval, execution, step

SECRET = "hush-4711-hush"
FINGERPRINT, KNOWN = "f" * 40, "e" * 40
TASK = "jobsapp.echo"
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
        return [*map(page_of, rows), *self._named]

    @property
    def _named(self) -> list[str]:
        """Pages of what is a name rather than a row."""
        groups = [page_of(fingerprint, "errorgroup") for fingerprint in (FINGERPRINT, KNOWN)]
        return [page_of("default", "queue"), page_of(TASK, "tasktype"), *groups]

    @property
    def pages(self) -> list[str]:
        """These, and the pages of all rows."""
        rows = [*self.jobs.values(), self.worker, *self.flows.values(), *self.asked, *self.bulks.values()]
        return [*self.lists, f"{listed('errorgroup')}?state=all", *map(page_of, rows), *self._named]

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
    failed |= {"error_class": "ChargeDeclined", "job_type": TASK}
    scene.jobs = {
        "dead": make_job("dead", payload={"order": {"id": 2**60}, "api_key": SECRET}, **failed),
        "discarded": make_job("dead", discarded_at=Now(), **failed),
        "known": make_job("dead", **failed | {"fingerprint": KNOWN}),
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
    _happened()
    return scene


def _happened() -> None:
    """Somebody knows of a cause, a type of job has figures, and a line of each tone is in the log."""
    acknowledging.acknowledge(
        [KNOWN], actor="ben", reason="keys rotate", link="https://tickets.example.com/221"
    )
    tally = Tally(done=40, retried=9, dead=1)
    for n in range(50):
        tally.measure(0.1, 0.2 * n)
    rollups.add({("default", TASK): tally}, using=QUEUE)
    for kind in ("job_died", "error_new", "lease_reclaimed"):
        Activity.objects.create(
            kind=kind,
            queue="default",
            job_type=TASK,
            fingerprint=FINGERPRINT,
            target_id="host.1.abc",
            details={"count": 3, "status": "dead", "error": "Declined" * 20},
        )
