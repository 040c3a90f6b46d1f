"""A bad night in a shop, brought about for real: failing jobs, a worker that dies, a queue that nobody serves."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.files.base import ContentFile
from django.db import connection

from example_project.demo import incident_story
from example_project.demo.crew import Crew, DemoError
from example_project.demo.paper import write_pdf
from example_project.documents.intake import receive
from example_project.screenshots import jobs, workflows
from pgjobs.models import Job, Wait, Worker
from pgjobs.queue import acknowledging, pauses

SQL = Path(__file__).parent / "sql"
PATIENCE_SECONDS = 60.0
CLOCK = ("--lease-seconds", "30", "--heartbeat-seconds", "2", "--poll-seconds", "0.2")
MAIN, BILLING = "workers", "billing"


class Night:
    """What happened, and the rows to look at. ``pass_`` brings it about and takes some seconds."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.dead: int = 0
        """A job whose card was declined."""
        self.waiting: int = 0
        """A job of the queue that nobody serves."""
        self.execution: int = 0
        """An execution that has got as far as a person's decision."""
        self.approval: int = 0
        self.order: int = 0
        """An execution that waits for a job of the queue that nobody serves."""
        self.known: str = ""
        """The fingerprint of a cause that somebody knows about."""

    def pass_(self) -> None:
        """All of it. Raises DemoError when something does not happen in time."""
        queues = "mail,crm,imports,documents,reports,default"
        self._crew.start(
            MAIN, "runworkers", "--processes", "2", "--concurrency", "6", "--queues", queues, *CLOCK
        )
        self._crew.start(BILLING, "runworkers", "--processes", "1", "--queues", "billing", *CLOCK)
        self._work()
        self._incidents()
        self._lose_billing()
        self._stuck()
        self._order()
        self._long_ago()
        self._know()
        self._run()

    def _work(self) -> None:
        """What went well, and what is dead."""
        jobs.send.enqueue_many(
            [{"to": f"customer{n}@example.com", "template": "receipt"} for n in range(160)]
        )
        self.dead = [
            jobs.charge.enqueue(
                order=26_000_412 + n,
                amount=f"{19 + n % 70}.90",
                customer={"id": 4711 + n, "email": f"customer{n}@example.com", "tenant": "acme"},
                card_token=f"tok_{n:06d}",
            ).pk
            for n in range(48)
        ][-1]
        jobs.sync.enqueue_many([{"account": n, "tenant": "acme"} for n in range(14)])
        ended = Job.objects.filter(queue__in=["mail", "billing", "crm"])
        self._until(
            lambda: not ended.filter(status__in=["pending", "running"]).exists(), "the end of the jobs"
        )

    def _incidents(self) -> None:
        """One failed check whose fix waits for a person, one that was decided before."""
        receive([ContentFile(write_pdf("Runbook of the shop", 1), name="shop-runbook.pdf")])
        _, first = incident_story.deliver("check_run", str(uuid.uuid4()))
        _, second = incident_story.deliver("deployment_status", str(uuid.uuid4()))
        if first is None or second is None:
            raise DemoError("The webhook made no incidents of two deliveries.")
        asked = Wait.objects.filter(kind="approval", resolved_at__isnull=True, execution__status="waiting")
        self._until(lambda: asked.count() == 2, "two approvals")
        wait = asked.get(execution_id=first.execution_id)
        self.execution, self.approval = wait.execution_id, wait.pk

    def _lose_billing(self) -> None:
        """The machine that charged cards is gone."""
        lost = Worker.objects.filter(queues=["billing"], stopped_at__isnull=True)
        self._crew.lose(BILLING, list(lost.values_list("pid", flat=True)))

    def _stuck(self) -> None:
        """Orders wait for the worker that is gone, reports for a person."""
        jobs.charge.enqueue_many(
            [
                {
                    "order": 26_001_000 + n,
                    "amount": "49.00",
                    "customer": {"id": 9000 + n},
                    "card_token": "current",
                }
                for n in range(312)
            ]
        )
        waiting = Job.objects.filter(queue="billing", status="pending").order_by("pk")
        self.waiting = waiting.values_list("pk", flat=True)[0]
        pauses.pause("reports", actor="ana", reason="db migration, INC-221", until=timedelta(minutes=30))
        regions = ("north", "south", "west", "islands")
        jobs.monthly.enqueue_many(
            [{"month": f"2026-{n:02d}", "region": region} for n in range(1, 12) for region in regions]
        )
        jobs.send.using(run_after=timedelta(hours=1)).enqueue_many(
            [{"to": f"customer{n}@example.com", "template": "reminder"} for n in range(40)]
        )

    def _order(self) -> None:
        """A workflow that has come as far as its charge."""
        started = workflows.fulfil.start(order=26_001_400, amount="129.00", key="order:26001400")
        self.order = started.pk
        asked = Wait.objects.filter(execution_id=started.pk, kind="job", resolved_at__isnull=True)
        self._until(asked.exists, "an order that waits for its charge")

    def _know(self) -> None:
        """Somebody has looked at the time-outs, and says so."""
        self.known = Job.objects.filter(queue="crm", status="dead").latest("pk").fingerprint
        acknowledging.acknowledge(
            [self.known],
            actor="ana",
            reason="The CRM's vendor is on it; sync again when their status page is green.",
            link="https://tickets.example.com/INC-219",
        )

    def _long_ago(self) -> None:
        """What took seconds took hours: rows move into the past, and the days before get their figures."""
        with connection.cursor() as cursor:
            for script in sorted(SQL.glob("*.sql")):
                cursor.execute(script.read_text(encoding="utf-8"))
            cursor.execute("ANALYZE")

    def _run(self) -> None:
        """Some work that is under way while the pictures are taken."""
        for file, rows, done in (("stock.csv", 9_000, 1_204), ("prices.csv", 40_000, 31_870)):
            jobs.load.enqueue(file=file, rows=rows, done=done)
        receive([ContentFile(write_pdf("Lease of the premises", 40), name="lease.pdf")])
        running = Job.objects.filter(status="running", progress__isnull=False)
        self._until(lambda: running.count() >= 3, "work that is under way")

    def _until(self, condition: Callable[[], Any], what: str) -> Any:
        """The first true value. Raises DemoError, and ChildFailed when a child has ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (value := condition()):
            self._crew.check()
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not come within {PATIENCE_SECONDS:g} s.")
            time.sleep(0.1)
        return value
