"""Jobs that wait, as most real ones do, on many workers: how near to the ideal, and is any run twice."""

from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import QUEUE, pause

WORKERS = 16
LIMIT_SECONDS = 300.0
LEFT = "SELECT count(*) FROM pgjobs_job WHERE status <> 'succeeded'"
SPAN = """
    SELECT sum(attempt_count) - count(*), extract(epoch FROM max(completed_at) - min(started_at))::float8
    FROM pgjobs_job"""


def measure(bench: Bench) -> dict[str, float]:
    """One slot in each of 16 worker processes, started and idle before the jobs come."""
    jobs, seconds = bench.sizes.slow_jobs, bench.sizes.slow_milliseconds / 1000
    bench.fleet.start_workers("slow", QUEUE, processes=WORKERS, concurrency=1)
    pause.enqueue_many([{"milliseconds": bench.sizes.slow_milliseconds}] * jobs)
    bench.wait(lambda: bench.one(LEFT) == (0,), "the success of all jobs", LIMIT_SECONDS)
    bench.fleet.end("slow")
    twice, took = bench.one(SPAN)
    rounds = -(-jobs // WORKERS)  # the last one may not be full
    return {"slow_linear": rounds * seconds / took, "slow_duplicates": twice}
