"""Two thousand jobs, four processes, twenty kills: each effect once, none lost, attempts honest."""

import os
import random
import signal

import pytest
from django.db.models import Count

from pgjobs.models import Job
from tests.jobsapp.jobs import finish_effect
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.worker.conftest import Spawn

pytestmark = pytest.mark.workers

JOBS, KILLS = 2_000, 20


@pytest.mark.campaign
def test_two_thousand_jobs_under_twenty_kills(spawn: Spawn) -> None:
    finish_effect.using(max_crashes=KILLS + 1).enqueue_many({"key": f"document {n}"} for n in range(JOBS))
    hurry = {"CRASH_DELAY_SECONDS": 0.05, "CRASH_DELAY_CAP_SECONDS": 0.1}
    workers = spawn("--drain", processes=4, concurrency=2, settings=hurry, wait=False)
    dice = random.Random(2)

    for kill in range(1, KILLS + 1):
        # Spread over the run: the next kill comes when its share of the work is done.
        wait_until(lambda due=kill * JOBS // (KILLS + 5): finished() >= due, 120, "progress")
        victim = dice.choice(wait_until(lambda: workers.child_pids, 60, "a worker to kill"))
        os.kill(victim, signal.SIGKILL)

    assert workers.wait(120) == 0, workers.output()
    assert Job.objects.filter(status="succeeded").count() == JOBS
    done = Effect.objects.values("key").annotate(times=Count("id"))
    assert {(d["key"], d["times"]) for d in done} == {(f"document {n}", 1) for n in range(JOBS)}
    jobs = list(Job.objects.values_list("attempt_count", "crash_count", "errors"))
    assert all(attempts == 1 + crashes for attempts, crashes, _ in jobs)
    assert all([e["kind"] for e in errors] == ["lost"] * crashes for _, crashes, errors in jobs)
    assert sum(crashes for _, crashes, _ in jobs) >= KILLS // 2, "most kills hit a running job"


def finished() -> int:
    return Job.objects.filter(status="succeeded").count()
