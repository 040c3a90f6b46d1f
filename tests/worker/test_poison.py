"""A job that kills its process spends its own budget and nobody else's."""

from collections.abc import Callable

import pytest

from pgjobs.models import Minute
from pgjobs.queue.rollups import LIFETIME
from tests.jobsapp.jobs import hold
from tests.jobsapp.misbehaving import exit_process, kill_when_open
from tests.jobsapp.models import Effect
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import deeds, wait_ended, wait_for_deed

pytestmark = pytest.mark.workers


def test_poison_among_nine_healthy_jobs(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    door = gate("door")
    workers = spawn(processes=2, concurrency=5)
    healthy = [hold.enqueue(key=f"healthy {n}", gate=str(door)) for n in range(9)]
    poison = kill_when_open.enqueue(key="poison", gate=str(door))
    for n in range(9):
        wait_for_deed(f"healthy {n}:start")
    wait_for_deed("poison")

    door.open()
    ended = wait_ended([*healthy, poison])

    assert {ended[job.pk].status for job in healthy} == {"succeeded"}
    assert {len(deeds(f"healthy {n}:end")) for n in range(9)} == {1}
    dead = ended[poison.pk]
    assert (dead.status, dead.attempt_count, dead.crash_count, len(deeds("poison"))) == ("dead", 3, 3, 3)
    assert "crash budget spent" in dead.note and "crash 3 of 3" in dead.note
    assert [(e["kind"], e["worker"]) for e in dead.errors] == [("lost", d.worker) for d in deeds("poison")]
    assert all(entry["heartbeat_at"] for entry in dead.errors)
    neighbours = [ended[job.pk] for job in healthy if ended[job.pk].crash_count]
    assert all((job.attempt_count, job.crash_count) == (2, 1) for job in neighbours)
    suspects = set(Effect.objects.filter(attempt__gt=1).values_list("pid", flat=True))
    assert not suspects & set(Effect.objects.filter(attempt=1).values_list("pid", flat=True))
    assert not Effect.objects.filter(pid=deeds("poison")[2].pid, pk__lt=deeds("poison")[2].pk).exists(), (
        "the last chance has a fresh process"
    )
    assert len(workers.names) == len(set(workers.names))


@pytest.mark.parametrize("code", [0, 75])
def test_leaving_with_an_orderly_exit_code_is_a_crash(spawn: Spawn, code: int) -> None:
    """Also under --drain, which must not take the exit for its own end, nor end before the suspects do."""
    poison = exit_process.using(max_crashes=2).enqueue(key="exit", code=code)
    workers = spawn(
        "--drain",
        concurrency=1,
        settings={"CRASH_DELAY_SECONDS": 2, "CRASH_DELAY_CAP_SECONDS": 2},
        wait=False,
    )

    assert workers.wait(60) == 0, workers.output()

    [dead] = wait_ended([poison], 1).values()
    assert (dead.status, dead.attempt_count, dead.crash_count) == ("dead", 2, 2)
    assert [entry["kind"] for entry in dead.errors] == ["lost", "lost"]
    figures = Minute.objects.get(minute=LIFETIME, job_type=dead.job_type)
    assert (figures.done, figures.retried, figures.dead) == (0, 1, 1), (
        "what nobody has settled is counted too"
    )
