"""What a worker costs that has nothing to do: memory, and statements on the server."""

import re
import subprocess
import time
from pathlib import Path

from django.db import connection

from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import QUEUE, noop

SETTLE_SECONDS = (
    15.0  # until what a first job leads to is over: figures, a session that is given up, the first heartbeat
)
JOB_SECONDS = 30.0
MEGABYTE = 1_000_000
OURS = 2  # statements of this process between the two counts
DONE = "SELECT count(*) FROM pgjobs_job WHERE status = 'succeeded'"
FLUSH = "SELECT pg_stat_force_next_flush()::text"
TRANSACTIONS = """
    SELECT xact_commit + xact_rollback, extract(epoch FROM clock_timestamp())::float8
    FROM pg_stat_database WHERE datname = current_database()"""


def measure(bench: Bench) -> dict[str, float]:
    """After one job, so that everything that is loaded late is loaded.

    Every statement of an idle worker is a transaction of its own, so the server's transaction count is the
    count of statements. Ours are subtracted; autovacuum's are not, which is therefore left nothing to do: in the
    minute after the tables were made it sends more than a worker does.
    """
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    bench.fleet.start_workers("idle", QUEUE, processes=1, concurrency=bench.sizes.concurrency)
    noop.enqueue()
    bench.wait(lambda: bench.one(DONE) == (1,), "the success of a job", JOB_SECONDS)
    time.sleep(min(SETTLE_SECONDS, bench.sizes.idle_seconds))
    before, since = _transactions(bench)
    time.sleep(bench.sizes.idle_seconds)
    after, until = _transactions(bench)
    ((_, worker),) = bench.fleet.workers("idle")
    resident, proportional = memory(worker)
    supervisor, _ = memory(bench.fleet.pid("idle"))
    bench.fleet.end("idle")
    values = {
        "idle_statements_per_second": max(after - before - OURS, 0) / (until - since),
        "idle_rss_mb": resident,
    }
    if proportional is not None:
        values["idle_pss_mb"] = proportional
    return values | {"supervisor_rss_mb": supervisor}


def memory(pid: int) -> tuple[float, float | None]:
    """Resident and, where the system tells it, proportional megabytes of a process."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        kilobytes = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
        )
        return int(kilobytes.stdout) * 1024 / MEGABYTE, None
    found = {
        name: int(size) * 1024 / MEGABYTE
        for name, size in re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)
    }
    return found["Rss"], found["Pss"]


def _transactions(bench: Bench) -> tuple[float, float]:
    bench.one(FLUSH)
    count, at = bench.one(TRANSACTIONS)
    return count, at
