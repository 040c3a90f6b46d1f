"""Jobs a second into the table: one commit each, and many in one call."""

import statistics
import time

from example_project.benchmark.bench import Bench
from example_project.benchmark.jobs import noop

ROUNDS = 3


def measure(bench: Bench) -> dict[str, float]:
    """No worker runs meanwhile. The bulk rate is the median of three rounds."""
    began = time.perf_counter()
    for _ in range(bench.sizes.singles):
        noop.enqueue()
    single = bench.sizes.singles / (time.perf_counter() - began)
    bulk = []
    for _ in range(ROUNDS):
        bench.clear()
        began = time.perf_counter()
        noop.enqueue_many([{}] * bench.sizes.bulk)
        bulk.append(bench.sizes.bulk / (time.perf_counter() - began))
    return {"enqueue_single_per_second": single, "enqueue_bulk_per_second": statistics.median(bulk)}
