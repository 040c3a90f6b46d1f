"""How soon the job of a killed worker runs again, with default settings."""

import os
import signal
import time

from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import QUEUE, pause

AGAIN_SECONDS = 180.0
LONG = 600_000  # milliseconds: longer than anybody waits here
ATTEMPT = "SELECT count(*) FROM pgjobs_job WHERE status = 'running' AND attempt_count = {attempt}"
OWNER = "SELECT lease_owner FROM pgjobs_job WHERE status = 'running'"


def of_a_process(bench: Bench) -> dict[str, float]:
    """SIGKILL to the worker process; its supervisor lives."""
    bench.fleet.start_workers("orphans", QUEUE, processes=2, concurrency=bench.sizes.concurrency)
    pause.enqueue(milliseconds=LONG)
    _running(bench, attempt=1)
    (owner,) = bench.one(OWNER)
    (victim,) = [pid for name, pid in bench.fleet.workers("orphans") if name in str(owner)]
    os.kill(victim, signal.SIGKILL)
    seconds = _running(bench, attempt=2)
    bench.fleet.kill("orphans")
    return {"orphan_of_process": seconds}


def of_a_host(bench: Bench) -> dict[str, float]:
    """Supervisor and workers are gone at once; other workers live. The lease has to lapse."""
    bench.fleet.start_workers("orphans-lost", QUEUE, processes=1, concurrency=bench.sizes.concurrency)
    pause.enqueue(milliseconds=LONG)
    _running(bench, attempt=1)
    bench.fleet.start_workers("orphans-other", QUEUE, processes=1, concurrency=bench.sizes.concurrency)
    bench.fleet.lose_host("orphans-lost")
    seconds = _running(bench, attempt=2)
    bench.fleet.kill("orphans-other")
    return {"orphan_of_host": seconds}


def _running(bench: Bench, *, attempt: int) -> float:
    """Until that attempt runs; how long it took from now."""
    began = time.monotonic()
    bench.wait(
        lambda: bench.one(ATTEMPT.format(attempt=attempt)) == (1,), f"attempt {attempt}", AGAIN_SECONDS
    )
    return time.monotonic() - began
