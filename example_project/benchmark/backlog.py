"""The rate at which idle-started workers empty a backlog: what the comparisons of this benchmark are made of."""

import statistics

from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import QUEUE, noop
from example_project.demo.crew import DemoError

ROUNDS = 3
DRAIN_SECONDS = 600.0
LEFT = (
    "SELECT (EXISTS (SELECT FROM pgjobs_job WHERE status IN ('pending', 'running') AND id >= {first}))::int"
)
"""Future-dated jobs stand before ``first``."""
LAST = "SELECT (status IN ('pending', 'running'))::int FROM pgjobs_job WHERE id = {last}"
SPAN = """
    SELECT count(*) FILTER (WHERE status = 'succeeded' AND attempt_count = 1),
           extract(epoch FROM max(completed_at) - min(started_at))::float8
    FROM pgjobs_job WHERE id >= {first}"""


def drain(bench: Bench, jobs: int, *, processes: int = 1) -> int:
    """Run ``jobs`` no-ops that lie there before a worker starts; the id of the first of them.

    Raises DemoError when one did not succeed at its first attempt.
    """
    ids = noop.enqueue_many([{}] * jobs)
    first = min(ids)
    bench.fleet.start_workers("backlog", QUEUE, processes=processes, concurrency=bench.sizes.concurrency)
    # The cheap question until the end is near: the other one reads every row that has ended so far.
    last = LAST.format(last=max(ids))
    bench.wait(lambda: bench.one(last) == (0,), "the end of the last job", DRAIN_SECONDS)
    bench.wait(lambda: bench.one(LEFT.format(first=first)) == (0,), "the end of the backlog", DRAIN_SECONDS)
    bench.fleet.end("backlog")
    once, _ = bench.one(SPAN.format(first=first))
    if once != jobs:
        raise DemoError(f"{once} of {jobs} jobs ran exactly once, so the rate would mean nothing.")
    return first


def rate(bench: Bench, *, processes: int = 1) -> float:
    """Jobs a second by the database's clock."""
    first = drain(bench, bench.sizes.jobs, processes=processes)
    _, seconds = bench.one(SPAN.format(first=first))
    return bench.sizes.jobs / seconds


def typical_rate(bench: Bench) -> float:
    """Median of some backlogs, one after another."""
    return statistics.median(rate(bench) for _ in range(ROUNDS))
