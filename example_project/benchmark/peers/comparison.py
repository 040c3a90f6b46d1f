"""What the rounds come to: one value for each measure and entrant, and its ratio to pgjobs in the same rounds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from example_project.benchmark.figures import percentile
from example_project.benchmark.peers.contest import Outcome
from example_project.benchmark.peers.turn import Samples

OURS = "pgjobs"


@dataclass(frozen=True)
class Measure:
    """A figure of the contest. ``sample`` is what a turn calls it; ``percent`` picks of many samples."""

    name: str
    label: str
    unit: str
    sample: str
    more_is_better: bool = True
    percent: float | None = None

    def of(self, rounds: Sequence[Samples]) -> float | None:
        """Median of the rounds, or the percentile of all samples of all rounds; None when there are none."""
        values = [value for samples in rounds for value in samples.get(self.sample, [])]
        if not values:
            return None
        return statistics.median(values) if self.percent is None else percentile(values, self.percent)


MEASURES = (
    Measure("drain", "no-op jobs drained by one process", "jobs/s", "drain"),
    Measure("bulk", "enqueue, the way meant for many", "jobs/s", "bulk"),
    Measure("single", "enqueue, one job a commit", "jobs/s", "single"),
    Measure("pickup_p50", "pick-up by an idle worker, p50", "ms", "pickup_ms", False, 50),
    Measure("pickup_p99", "pick-up by an idle worker, p99", "ms", "pickup_ms", False, 99),
    Measure("steps", "recorded no-op workflow steps, one process", "steps/s", "steps"),
    Measure("idle_transactions", "transactions of an idle worker", "1/s", "idle_transactions", False),
    Measure("idle_mb", "memory of an idle worker and its parent", "MB", "idle_mb", False),
)
MARKS: Mapping[tuple[str, str], float] = {
    ("drain", "pgqueuer"): 4.0,
    ("drain", "bare"): 0.75,
    ("bulk", "pgqueuer"): 2.0,
    ("steps", "dbos"): 3.0,
    ("steps", "absurd"): 3.0,
}
"""How many times as fast as a peer pgjobs is to be."""


@dataclass(frozen=True)
class Line:
    """One entrant in one measure. ``lead`` is how many times better pgjobs is; below 1 it is worse."""

    measure: Measure
    entrant: str
    value: float
    lead: float | None
    mark: float | None

    @property
    def verdict(self) -> str:
        if self.mark is None or self.lead is None:
            return ""
        return "met" if self.lead >= self.mark else "missed"


def compare(outcomes: Sequence[Outcome]) -> list[Line]:
    """For each measure, best first."""
    ours = next((outcome for outcome in outcomes if outcome.entrant.name == OURS), None)
    lines: list[Line] = []
    for measure in MEASURES:
        found = [
            Line(
                measure,
                outcome.entrant.name,
                value,
                _lead(measure, ours, outcome),
                MARKS.get((measure.name, outcome.entrant.name)),
            )
            for outcome in outcomes
            if (value := measure.of(outcome.rounds)) is not None
        ]
        lines += sorted(found, key=lambda line: line.value, reverse=measure.more_is_better)
    return lines


def _lead(measure: Measure, ours: Outcome | None, other: Outcome) -> float | None:
    """Median of the rounds' own ratios, so that rounds on a slow machine do not weigh more than others.

    Percentiles take all samples together: one round has too few of them for a p99.
    """
    if ours is None or ours is other:
        return None
    if measure.percent is not None:
        pairs = [(measure.of(ours.rounds), measure.of(other.rounds))]
    else:
        pairs = [
            (measure.of([mine]), measure.of([theirs]))
            for mine, theirs in zip(ours.rounds, other.rounds, strict=False)
        ]
    ratios = [
        mine / theirs if measure.more_is_better else theirs / mine
        for mine, theirs in pairs
        if mine and theirs
    ]
    return statistics.median(ratios) if ratios else None
