"""What a second worker process brings."""

import statistics

from example_project.benchmark import backlog
from example_project.benchmark.bench import Bench


def measure(bench: Bench) -> dict[str, float]:
    """One process and two in turn, each on empty tables; the median of the ratios."""
    ratios = []
    for _ in range(backlog.ROUNDS):
        bench.clear()
        one = backlog.rate(bench)
        bench.clear()
        ratios.append(backlog.rate(bench, processes=2) / one)
    return {"two_processes": statistics.median(ratios)}
