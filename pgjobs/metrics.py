"""Metrics in the text format of Prometheus, from the database: the same with any number of web processes.

A collector that fails leaves its series out and says ``pgjobs_collector_up 0``: never a zero that reads as all clear.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from django.db import Error

from pgjobs.conf import get_settings
from pgjobs.health.examination import judge
from pgjobs.health.facts import Facts
from pgjobs.health.queues import QueueRow, queue_rows
from pgjobs.health.reading import Reader
from pgjobs.health.verdict import Verdict
from pgjobs.queue.rollups import BOUNDS, LIFETIME
from pgjobs.queue.stats import COUNT_LIMIT

LABELS = 200
"""Values that a label may have; what comes after them is added up as "other"."""
OTHER = "other"

_SUMS = f"""
WITH lifetime AS (SELECT * FROM pgjobs_minute WHERE minute = '{LIFETIME}'),
counted AS (
    SELECT queue, array_agg(waits ORDER BY n) AS waits, array_agg(runs ORDER BY n) AS runs FROM (
        SELECT queue, n, sum(waits)::bigint AS waits, sum(runs)::bigint AS runs
        FROM lifetime CROSS JOIN LATERAL unnest(wait_counts, run_counts) WITH ORDINALITY AS bucket(waits, runs, n)
        GROUP BY queue, n) AS bucket
    GROUP BY queue)
SELECT summed.*, counted.waits, counted.runs FROM (
    SELECT queue, sum(done)::bigint, sum(failed)::bigint, sum(dead)::bigint, sum(retried)::bigint,
           sum(wait_seconds)::float8, sum(run_seconds)::float8
    FROM lifetime GROUP BY queue) AS summed
LEFT JOIN counted USING (queue) ORDER BY queue"""  # noqa: S608 - a constant

Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """One metric with its samples."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)
    """Suffix of the name, labels, value."""

    def add(self, value: float, suffix: str = "", **labels: str) -> None:
        """One sample."""
        self.samples.append((suffix, labels, value))


Collector = Callable[[Facts, Verdict], Iterator[Family]]


def collect(*, using: str | None = None) -> str:
    """All metrics, at this moment."""
    began = time.monotonic()
    families: list[Family] = []
    up = Family("pgjobs_collector_up", "gauge", "Whether the series of this collector could be read.")
    with Reader(using or get_settings().database) as reader:
        facts = Facts(reader, far=True)
        verdict = judge(facts)
        for name, collector in COLLECTORS.items():
            try:
                families += list(collector(facts, verdict))
            except Error:
                up.add(0, collector=name)
            else:
                up.add(0 if name == "problems" and verdict.unknown else 1, collector=name)
    seconds = Family("pgjobs_scrape_seconds", "gauge", "How long it took to collect these.")
    seconds.add(time.monotonic() - began)
    return rendered([*families, up, seconds])


def rendered(families: Iterable[Family]) -> str:
    """The text format, version 0.0.4."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for suffix, labels, value in family.samples:
            told = ",".join(f'{name}="{_escaped(text, quote=True)}"' for name, text in labels.items())
            lines.append(
                f"{family.name}{suffix}{{{told}}} {_number(value)}"
                if told
                else f"{family.name}{suffix} {_number(value)}"
            )
    return "\n".join([*lines, ""])


def _queues(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    rows = queue_rows(facts, verdict.problems)
    named, rest = rows[:LABELS], rows[LABELS:]
    if rest:  # a queue may have that very name, and a series may stand there once only
        rest += [row for row in named if row.name == OTHER]
        named = [row for row in named if row.name != OTHER]
    for name, help, value, together in _OF_QUEUES:
        family = Family(f"pgjobs_queue_{name}", "gauge", help)
        for row in named:
            family.add(value(row), queue=row.name)
        if rest:
            family.add(together(map(value, rest)), queue=OTHER)
        yield family


def _ends(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    finished = Family(
        "pgjobs_jobs_finished_total", "counter", "Attempts that ended, since the first worker counted."
    )
    sums = facts.reader.ask(_SUMS)
    if (
        len(sums) <= LABELS + 1
    ):  # queues that are no more, all in one row, are none of the others that there are
        sums = [row for row in sums if row[0]]
    sums = sorted(sums, key=lambda row: not row[0])  # they take no label from one that there is
    place = {queue: queue if queue and rank < LABELS else OTHER for rank, (queue, *_) in enumerate(sums)}
    totals: dict[str, list[float]] = {}
    counts: dict[str, list[list[int]]] = {}
    for queue, *numbers, waits, runs in sums:
        both = counts.setdefault(place[queue], [[0] * (len(BOUNDS) + 1) for _ in range(2)])
        for each, found in zip(both, (waits, runs), strict=True):
            for bucket, number in enumerate(found or ()):
                each[bucket] += number or 0
        held = totals.setdefault(place[queue], [0.0] * len(numbers))
        totals[place[queue]] = [a + b for a, b in zip(held, numbers, strict=True)]
    for queue, numbers in totals.items():
        for outcome, number in zip(("succeeded", "failed", "dead", "retried"), numbers, strict=False):
            finished.add(number, queue=queue, outcome=outcome)
    yield finished
    for which, name, help in (
        (0, "wait", "From when a job was due to its claim."),
        (1, "run", "How long an attempt ran."),
    ):
        family = Family(f"pgjobs_job_{name}_seconds", "histogram", help)
        for queue, both in counts.items():
            _histogram(family, queue, both[which], totals[queue][4 + which])
        yield family


def _histogram(family: Family, queue: str, counts: list[int], total: float) -> None:
    below = 0
    for bound, count in zip(BOUNDS, counts, strict=False):
        below += count
        family.add(below, "_bucket", queue=queue, le=_number(bound))
    family.add(sum(counts), "_bucket", queue=queue, le="+Inf")
    family.add(total, "_sum", queue=queue)
    family.add(sum(counts), "_count", queue=queue)


def _dead(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    total, lately = facts.dead.total, facts.dead.last_hour
    family = Family(
        "pgjobs_dead", "gauge", "Dead and failed jobs in the table, counted up to DEAD_ALERT and one more."
    )
    family.add(total)
    yield family
    recent = Family("pgjobs_dead_last_hour", "gauge", "Those of the last hour, counted up to 501.")
    recent.add(lately)
    yield recent


def _leases(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    family = Family(
        "pgjobs_leases_expired", "gauge", "Rows under a lease that lapsed and that nobody took back."
    )
    family.add(sum(held.lapsed for held in facts.held))
    yield family


def _workers(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    family = Family("pgjobs_workers", "gauge", "Worker processes by state and version of the code.")
    counted: dict[tuple[str, str], int] = {("live", ""): 0}
    versions = list(dict.fromkeys(worker.code_version for worker in facts.workers))[:LABELS]
    for worker in facts.workers:
        if worker.state != "stopped":
            key = (worker.state, worker.code_version if worker.code_version in versions else OTHER)
            counted[key] = counted.get(key, 0) + 1
    for (state, version), number in counted.items():
        family.add(number, state=state, version=version)
    yield family


def _workflows(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    found = facts.workflows
    for name, help, value in (
        ("approvals_overdue", "Approvals past their time, counted up to 1,000.", found.overdue),
        ("executions_paused", "Executions that wait for a person, counted up to 1,000.", found.paused),
    ):
        family = Family(f"pgjobs_{name}", "gauge", help)
        family.add(value)
        yield family


def _statistics(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    newest = facts.newest_minute
    if newest is not None:
        family = Family("pgjobs_stats_age_seconds", "gauge", "Age of the newest figures per minute.")
        family.add((facts.clock - newest).total_seconds())
        yield family


def _problems(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    family = Family(
        "pgjobs_problem", "gauge", "How many problems of that rule there are, as pgjobs_health tells them."
    )
    counted: dict[tuple[str, str], int] = {}
    for problem in verdict.problems:
        queue = problem.queue if not problem.queue or len(counted) < LABELS else OTHER
        key = (problem.code, queue)
        counted[key] = counted.get(key, 0) + 1
    for (code, queue), number in counted.items():
        family.add(number, code=code, queue=queue)
    yield family


COLLECTORS: Mapping[str, Collector] = {
    "queues": _queues,
    "ends": _ends,
    "dead": _dead,
    "leases": _leases,
    "workers": _workers,
    "workflows": _workflows,
    "statistics": _statistics,
    "problems": _problems,
}

_OF_QUEUES: tuple[tuple[str, str, Callable[[QueueRow], float], Callable[[Iterable[float]], float]], ...] = (
    (
        "oldest_claimable_age_seconds",
        "How long the oldest row that could run now has waited; 0 when there is none.",
        lambda row: row.oldest.total_seconds() if row.oldest else 0.0,
        max,
    ),
    ("ready", "Due rows, counted up to 10,000.", lambda row: min(row.ready, COUNT_LIMIT), sum),
    ("ready_capped", "1 when there are more than were counted.", lambda row: float(row.ready_capped), max),
    ("due_later", "Rows that are not due yet, counted up to 10,001.", lambda row: row.later, sum),
    ("running", "Rows that run.", lambda row: row.running, sum),
    ("capacity", "Slots of the live workers that serve it.", lambda row: row.capacity, max),
    ("paused", "1 when it is paused.", lambda row: float(row.pause is not None), max),
)


def _escaped(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quote else text


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
