"""An execution that kills its workers is paused with the evidence; one that makes progress in between is not."""

from pathlib import Path

import pytest

from pgjobs.leases.reap import reap_owner
from pgjobs.models import Execution, StepOutput
from pgjobs.workflows.control import resume
from tests.jobsapp import workflows as flows
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.worker.conftest import Spawn
from tests.workflows.carrier import Carrier, charge_crashes
from tests.workflows.rows import status
from tests.workflows.test_kills import HURRY


@pytest.mark.workers
def test_poison_is_paused_and_its_neighbours_end(spawn: Spawn) -> None:
    poison = flows.poison.start()
    healthy = [flows.sleeper.start(seconds=0.2) for _ in range(5)]
    spawn(concurrency=3, settings=HURRY)

    wait_until(lambda: status(poison) == "paused", 60, lambda: f"the pause, {status(poison)}")
    wait_until(lambda: all(status(one) == "succeeded" for one in healthy), 60, "the neighbours")
    poison.refresh_from_db()
    assert (poison.crash_count, poison.completed_at, poison.lease_token) == (3, None, None)
    assert "crash budget spent" in poison.pause_reason and "crash 3 of 3" in poison.pause_reason
    assert [(error["kind"], error["attempt"]) for error in poison.errors] == [("lost", n) for n in (1, 2, 3)]
    deeds = list(Effect.objects.filter(job_id=poison.pk).values_list("key", flat=True))
    assert deeds == [f"{poison.pk}:healthy", *[f"{poison.pk}:poison"] * 3], "the recorded step ran once"

    assert resume([poison.pk], actor="ann", reason="another try")[0].done
    wait_until(lambda: status(poison) == "paused", 60, "the second pause")
    poison.refresh_from_db()
    assert poison.crash_count == 3 and len(poison.errors) == 6 and "another try" in poison.note


@pytest.mark.workers
def test_progress_between_the_deaths_gives_the_budget_back(spawn: Spawn, tmp_path: Path) -> None:
    """Four deaths with a budget of two, each in another step."""
    started = flows.rough_road.start(folder=str(tmp_path), bumps=4)
    spawn(concurrency=1, settings=HURRY)

    wait_until(lambda: status(started) in ("succeeded", "paused"), 90, "the end")
    started.refresh_from_db()
    assert (started.output, [e["kind"] for e in started.errors]) == ("arrived", ["lost"] * 4), (
        started.pause_reason
    )
    assert started.crash_count == 0


def crash(carrier: Carrier, execution: Execution) -> None:
    """Its worker dies in its next turn."""
    execution.refresh_from_db()
    assert carrier.claim(suspects=execution.crash_count > 0) is not None
    assert len(reap_owner(Execution, carrier.owner, using="default")) == 1
    carrier.holdings.drop(carrier.holdings.all())
    Execution.objects.filter(pk=execution.pk).update(available_at=execution.created_at)


def test_a_new_step_gives_the_budget_back(carrier: Carrier) -> None:
    def body(ctx: object) -> None:
        ctx.step(lambda: 1, name="a")  # type: ignore[attr-defined]
        ctx.step(lambda: 1, name="b")  # type: ignore[attr-defined]

    started = carrier.flow(body).start()
    crash(carrier, started)
    crash(carrier, started)
    started.refresh_from_db()
    assert started.crash_count == 2

    assert carrier.turn(suspects=True)
    started.refresh_from_db()
    assert (started.status, started.crash_count, StepOutput.objects.count()) == ("succeeded", 0, 2)


def test_a_new_wait_gives_the_budget_back_and_an_old_one_does_not(carrier: Carrier) -> None:
    started = carrier.flow(lambda ctx: ctx.sleep("nap", 60)).start()
    crash(carrier, started)
    assert carrier.turn(suspects=True)
    started.refresh_from_db()
    assert (started.status, started.crash_count) == ("waiting", 0)

    Execution.objects.filter(pk=started.pk).update(status="enqueued")
    charge_crashes(started)
    assert carrier.turn(suspects=True)
    started.refresh_from_db()
    assert (started.status, started.crash_count) == ("waiting", 1), "it came no further than before"


def test_a_recorded_step_is_no_progress(carrier: Carrier) -> None:
    def body(ctx: object) -> None:
        ctx.step(lambda: 1, name="a")  # type: ignore[attr-defined]
        ctx.sleep("nap", 60)  # type: ignore[attr-defined]

    started = carrier.run(carrier.flow(body, max_crashes=2).start())
    Execution.objects.filter(pk=started.pk).update(status="enqueued")
    crash(carrier, started)
    crash(carrier, started)

    started.refresh_from_db()
    assert (started.status, started.crash_count) == ("paused", 2)
