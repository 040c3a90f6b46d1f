"""What a measurement gives: named values; and what is known of each name: its words, its unit, its mark."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mark:
    """The goal for a value."""

    limit: float
    more_is_better: bool

    def met(self, value: float) -> bool:
        return value >= self.limit if self.more_is_better else value < self.limit

    def __str__(self) -> str:
        return f"{'at least' if self.more_is_better else 'below'} {number(self.limit)}"


@dataclass(frozen=True)
class Meaning:
    """A value's name for people."""

    label: str
    unit: str
    mark: Mark | None = None


MEANINGS = {
    "drain_jobs_per_second": Meaning(
        "no-op jobs, first claim to last completion", "jobs/s", Mark(1500, True)
    ),
    "claim_p50_ms": Meaning("claim statement, p50", "ms"),
    "claim_p95_ms": Meaning("claim statement, p95", "ms"),
    "claim_rows": Meaning("jobs a claim brings, mean", "jobs"),
    "enqueue_single_per_second": Meaning("enqueue, one job a commit", "jobs/s"),
    "single_of_insert": Meaning("enqueue, part of a bare INSERT and commit", ""),
    "single_kept_of_insert": Meaning("the same, with Django's prepare_threshold", "", Mark(0.8, True)),
    "enqueue_bulk_per_second": Meaning("enqueue_many", "jobs/s", Mark(20_000, True)),
    "bulk_of_copy": Meaning("enqueue_many, part of a bare COPY", "", Mark(0.6, True)),
    "pickup_p50_ms": Meaning(
        "pick-up by an idle worker, commit sent to handler begun, p50", "ms", Mark(2, False)
    ),
    "pickup_p99_ms": Meaning("the same, p99", "ms", Mark(6, False)),
    "pickup_after_p50_ms": Meaning("pick-up, commit answered to handler begun, p50", "ms"),
    "pickup_after_p99_ms": Meaning("the same, p99", "ms"),
    "idle_statements_per_second": Meaning("statements of an idle worker", "1/s", Mark(1, False)),
    "idle_rss_mb": Meaning("memory of an idle worker process, resident", "MB", Mark(60, False)),
    "idle_pss_mb": Meaning("the same, shared pages divided among their users", "MB"),
    "supervisor_rss_mb": Meaning("memory of its supervisor, resident", "MB"),
}

FURTHER = {
    "two_processes": Meaning("two worker processes, over one", "times", Mark(1.6, True)),
    "above_completed": Meaning("rate kept above many completed rows", "", Mark(0.97, True)),
    "behind_future": Meaning("rate kept behind many future jobs of better priorities", "", Mark(0.9, True)),
    "behind_snapshot": Meaning("rate kept at the end of a churn behind a held snapshot", "", Mark(0.9, True)),
    "slow_linear": Meaning("slow jobs on 16 workers, part of linear", "", Mark(0.98, True)),
    "slow_duplicates": Meaning("executions beyond one a job, the same run", "", Mark(1, False)),
    "orphan_of_process": Meaning("job of a killed process runs again", "s", Mark(2, False)),
    "orphan_of_host": Meaning("job of a lost host runs again", "s", Mark(36, False)),
    "steps_per_second": Meaning("recorded no-op steps, in one process", "steps/s", Mark(1800, True)),
    "replay_ms": Meaning("a turn that replays a long history", "ms", Mark(100, False)),
    "above_sleepers": Meaning("claim of an execution kept above many sleeping ones", "", Mark(0.9, True)),
}
"""Of the measurements that only ``--all`` or ``--only`` take."""


def as_rows(values: Mapping[str, float]) -> list[list[Any]]:
    """Label, value, unit, mark and whether it is met, for a table."""
    rows = []
    for name, value in values.items():
        meaning = (MEANINGS | FURTHER)[name]
        verdict = "" if meaning.mark is None else ("met" if meaning.mark.met(value) else "missed")
        rows.append([meaning.label, number(value), meaning.unit, meaning.mark or "", verdict])
    return rows


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def number(value: float) -> str:
    """Three significant digits, and no more decimals than mean something."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"


def percent(fraction: float, decimals: int = 0, *, signed: bool = False) -> str:
    """``0.5`` as ``50 %``."""
    return f"{100 * fraction:{'+' if signed else ''}.{decimals}f} %"


def counted(workers: int) -> str:
    return f"{workers} worker" if workers == 1 else f"{workers} workers"
