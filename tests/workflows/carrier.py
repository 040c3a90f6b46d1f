"""A worker's engine without its process: claims, turns and the recorder's thread, on the test's database."""

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db.models import F
from django.db.models.functions import Now

from pgjobs import workflow
from pgjobs.models import Execution, Job, StepOutput, Wait
from pgjobs.queue.outcomes import Failed, Outcome, Problem, Succeeded
from pgjobs.worker import clock
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.recorder import Recorder
from pgjobs.worker.turns import Turns
from pgjobs.workflows.authoring import WorkflowType
from pgjobs.workflows.claiming import claim_executions
from pgjobs.workflows.registry import workflows
from pgjobs.workflows.sweep import sweep_due
from tests.leases.factories import claim as claim_jobs
from tests.leases.factories import end as end_job
from tests.support.own_database import QUEUE, connection

PATIENCE = 30.0


class Carrier:
    """Carries executions turn by turn, so that a test can look, or change the code, in between."""

    def __init__(self) -> None:
        self.owner = f"carrier.{uuid.uuid4().hex[:8]}"
        self.holdings = Holdings(60)
        self.recorder = Recorder(QUEUE, self.holdings)
        self.stopping = threading.Event()
        self.parked: list[float] = []
        self._names: set[str] = set()
        self._turns = Turns(
            using=QUEUE,
            recorder=self.recorder,
            holdings=self.holdings,
            confirm=lambda holding: not holding.lost,
            parked=self.parked.append,
            stopping=self.stopping,
        )
        self.recorder.start()

    def close(self) -> None:
        self.forget()
        self.recorder.stop()
        assert self.recorder.join(PATIENCE), "the recorder did not end"

    def flow(self, function: Callable[..., Any], *, name: str = "tests.flow", **options: Any) -> WorkflowType:
        """The code of a workflow from now on: whatever had the name before is gone, as after a deploy."""
        workflows._by_name.pop(name, None)
        self._names.add(name)
        return workflow(name=name, **options)(function)

    def forget(self) -> None:
        """This worker knows none of the test's workflows any more."""
        for name in self._names:
            workflows._by_name.pop(name, None)

    def claim(self, *, suspects: bool = False, lease_seconds: float = 60) -> Holding | None:
        """The best execution that can go on, of the test's workflows."""
        claimed = claim_executions(
            owner=self.owner,
            token=uuid.uuid4(),
            limit=1,
            lease_seconds=lease_seconds,
            names=sorted(self._names),
            queues=(),
            suspects=suspects,
            using=QUEUE,
        )
        return self.holdings.add(claimed, clock.now())[0] if claimed else None

    def start(self, holding: Holding) -> "Turning":
        """One turn of a claimed execution, in a thread as a slot has it."""
        return Turning(self._turns, self.recorder, holding)

    def turn(self, *, suspects: bool = False) -> bool:
        """Claim and carry one turn; False when nothing can go on."""
        holding = self.claim(suspects=suspects)
        if holding is None:
            return False
        self.start(holding).finish()
        return True

    def run(self, execution: Execution) -> Execution:
        """Turns until the execution is parked or has ended."""
        while self.turn():
            pass
        execution.refresh_from_db()
        return execution

    def wake(self, execution: Execution) -> Execution:
        """Its open sleep or deadline is over; then as :meth:`run`."""
        make_due(execution)
        assert sweep_due(using=QUEUE), "nothing was due"
        return self.run(execution)

    def replay(self, execution: Execution) -> Execution:
        """The same again from its history, as after a crash before the end was written."""
        Execution.objects.filter(pk=execution.pk).update(
            status="enqueued", output=None, completed_at=None, last_error="", available_at=Now()
        )
        return self.run(execution)


class Turning:
    """A turn under way."""

    def __init__(self, turns: Turns, recorder: Recorder, holding: Holding) -> None:
        self.holding = holding
        self._recorder = recorder
        self._raised: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(turns,), name="slot")
        self._thread.start()

    @property
    def going(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> None:
        """Returns when the turn is over and everything it asked for is written."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the turn does not end"
        assert self._recorder.wait_empty(PATIENCE), "the recorder does not come to rest"
        if self._raised:
            raise AssertionError(
                "an exception left the turn, and would have ended its slot"
            ) from self._raised[0]

    def _run(self, turns: Turns) -> None:
        try:
            turns.run(self.holding)
        except BaseException as error:
            self._raised.append(error)


def make_due(execution: Execution) -> None:
    """Lets the time of its open waits be over."""
    open_waits = Wait.objects.filter(execution=execution, resolved_at__isnull=True, wake_at__gt=Now())
    open_waits.update(wake_at=Now() - timedelta(seconds=1))


def finish_jobs(outcome: Outcome | None = None, limit: int = 1_000) -> list[int]:
    """Runs the due jobs of `jobsapp.ok`, each to this outcome or to its own success; their ids."""
    claimed = claim_jobs(limit, kinds=["jobsapp.ok", "jobsapp.echo"])
    for job in claimed:
        end_job(job, outcome or Succeeded('{"done": true}'))
    return [job.lease.pk for job in claimed]


FAILED = Failed(Problem("fail", "", "no luck", ""))


def recorded(execution: Execution) -> list[str]:
    """The ids of its recorded steps, in the order of the calls."""
    steps = StepOutput.objects.filter(execution=execution).order_by("ordinal")
    return list(steps.values_list("step_id", flat=True))


def waits(execution: Execution) -> list[tuple[str, bool]]:
    """Its waits and whether they are resolved, in the order they were opened."""
    found = Wait.objects.filter(execution=execution).order_by("id")
    return [(wait.step_id, wait.resolved_at is not None) for wait in found]


def awaited_jobs(execution: Execution) -> list[Job]:
    targets = (
        Wait.objects.filter(execution=execution, kind="job")
        .order_by("id")
        .values_list("target_id", flat=True)
    )
    found = Job.objects.in_bulk(list(targets))
    return [found[pk] for pk in targets]


def charge_crashes(execution: Execution, times: int = 1) -> None:
    """Counted deaths of its workers, with the delay after them over."""
    Execution.objects.filter(pk=execution.pk).update(crash_count=F("crash_count") + times)


def lapse(execution: Execution) -> None:
    """Moves the end of its lease into the past, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_execution SET lease_expires_at = clock_timestamp() - interval '5 s' WHERE id = %s",
            [execution.pk],
        )
