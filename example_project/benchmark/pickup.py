"""From the commit of a job to the first line of its handler, in a worker that has nothing else to do."""

import random
import time

from django.db import transaction

from example_project.benchmark.bench import Bench
from example_project.benchmark.figures import percentile
from example_project.benchmark.fleet import LOOK_SECONDS
from example_project.benchmark.jobs import QUEUE, arrival
from pgjobs.models import Job

REST_SECONDS = (0.05, 0.15)
JOB_SECONDS = 30.0


def measure(bench: Bench) -> dict[str, float]:
    """With the time of the COMMIT itself, which the marks are for, and without."""
    bench.fleet.start_workers("pickup", QUEUE, processes=1, concurrency=bench.sizes.concurrency)
    _pick_up(bench)  # not counted: the first one opens connections and starts threads
    sent, answered = zip(*[_pick_up(bench) for _ in range(bench.sizes.pickups)], strict=True)
    bench.fleet.end("pickup")
    return {
        "pickup_p50_ms": percentile(sent, 50),
        "pickup_p99_ms": percentile(sent, 99),
        "pickup_after_p50_ms": percentile(answered, 50),
        "pickup_after_p99_ms": percentile(answered, 99),
    }


def _pick_up(bench: Bench) -> tuple[float, float]:
    """Milliseconds since the COMMIT was sent, and since it was answered. Both ends read the clock of this host."""
    time.sleep(random.uniform(*REST_SECONDS))  # not in step with the worker's own rounds
    with transaction.atomic():
        job = arrival.enqueue()
        sent = time.time_ns()
    answered = time.time_ns()
    time.sleep(LOOK_SECONDS)  # a look at once would compete with the worker
    row = Job.objects.filter(pk=job.pk, result__isnull=False).values_list("result", flat=True)
    bench.wait(row.exists, f"job {job.pk}", JOB_SECONDS)
    began: int = row.get() or 0
    return (began - sent) / 1e6, (began - answered) / 1e6
