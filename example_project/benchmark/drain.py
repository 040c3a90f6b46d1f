"""Jobs a second through workers that were idle before, and what their claims took."""

from example_project.benchmark import claim_clock
from example_project.benchmark.bench import Bench
from example_project.benchmark.figures import percentile
from example_project.benchmark.fleet import environment
from example_project.benchmark.jobs import QUEUE, noop
from example_project.demo.crew import DemoError

DRAIN_SECONDS = 600.0
LEFT = "SELECT count(*) FROM pgjobs_job WHERE status <> 'succeeded'"
PENDING = "SELECT (EXISTS (SELECT FROM pgjobs_job WHERE status = 'pending'))::int"
SPAN = """
    SELECT count(*) FILTER (WHERE status = 'succeeded' AND attempt_count = 1), count(*),
           extract(epoch FROM max(completed_at) - min(started_at))::float8
    FROM pgjobs_job"""


def measure(bench: Bench) -> dict[str, float]:
    """First claim to last completion by the database's clock. Raises DemoError when not every job ran once."""
    sizes = bench.sizes
    claims = bench.folder / "claims"
    with environment(**{claim_clock.VARIABLE: str(claims)}):
        bench.fleet.start_workers("drain", QUEUE, processes=sizes.processes, concurrency=sizes.concurrency)
    noop.enqueue_many([{}] * sizes.jobs)
    # The cheap question until the end is near: counting a table costs the workers their processor.
    bench.wait(lambda: bench.one(PENDING) == (0,), "claiming all jobs", DRAIN_SECONDS)
    bench.wait(lambda: bench.one(LEFT) == (0,), "the success of all jobs", DRAIN_SECONDS)
    bench.fleet.end("drain")
    once, total, seconds = bench.one(SPAN)
    if not once == total == sizes.jobs:
        raise DemoError(f"{once} of {sizes.jobs} jobs ran exactly once, so the rate would mean nothing.")
    timed = claim_clock.read(claims)
    if not timed:
        raise DemoError(f"No claim was seen: no statement of the workers contains {claim_clock.CLAIM!r}.")
    milliseconds = [1000 * took for took, _ in timed]
    return {
        "drain_jobs_per_second": sizes.jobs / seconds,
        "claim_p50_ms": percentile(milliseconds, 50),
        "claim_p95_ms": percentile(milliseconds, 95),
        "claim_rows": sum(rows for _, rows in timed) / len(timed),
    }
