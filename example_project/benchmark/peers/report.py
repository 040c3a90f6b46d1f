"""The contest as text, as CSV and as one page with charts that needs nothing else."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from example_project.benchmark.figures import number
from example_project.benchmark.peers import chart
from example_project.benchmark.peers.comparison import MEASURES, OURS, Line, Measure
from example_project.benchmark.peers.contest import Outcome
from example_project.benchmark.peers.entrant import CLOCKS
from example_project.demo.tables import aligned

COLUMNS = ["entrant", "value", "unit", "pgjobs_is", "mark", ""]
CSV_COLUMNS = ["measure", "unit", "entrant", "versions", "clock", "round", "value", "pgjobs_times_better"]
LEAD = "how many times better pgjobs is: the median of the rounds' own ratios"


def text(outcomes: Sequence[Outcome], lines: Sequence[Line], told: Mapping[str, str]) -> Iterator[str]:
    for label, value in told.items():
        yield f"{label:>16}  {value}"
    for measure, found in by_measure(lines):
        yield ""
        yield f"{measure.label}"
        for row in aligned(COLUMNS, [cells(line) for line in found]):
            yield f"  {row}"
    yield ""
    yield LEAD
    for outcome in outcomes:
        yield ""
        yield f"{outcome.entrant.name}: {outcome.versions or 'not installed'}"
        for sentence in remarks(outcome):
            yield f"  {sentence}"


def remarks(outcome: Outcome) -> list[str]:
    """Settings, clocks, and why it is missing."""
    entrant = outcome.entrant
    said = [*entrant.settings]
    if entrant.has_jobs:
        said.append(f"rate: {CLOCKS[entrant.clock]}")
    if entrant.has_steps and entrant.steps_clock != entrant.clock:
        said.append(f"steps: {CLOCKS[entrant.steps_clock]}")
    if outcome.fault:
        said.append(f"LEFT OUT after {len(outcome.rounds)} rounds: {outcome.fault}")
    return said


def cells(line: Line) -> list[str]:
    lead = "" if line.lead is None else f"{number(line.lead)} times"
    mark = "" if line.mark is None else f"at least {line.mark:g}"
    return [line.entrant, number(line.value), line.measure.unit, lead, mark, line.verdict]


def by_measure(lines: Sequence[Line]) -> Iterator[tuple[Measure, list[Line]]]:
    for measure in MEASURES:
        if found := [line for line in lines if line.measure is measure]:
            yield measure, found


def write_csv(path: Path, outcomes: Sequence[Outcome], lines: Sequence[Line]) -> None:
    """A row for every round, and one with ``all`` for what the rounds come to."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_COLUMNS)
        for outcome in outcomes:
            entrant = outcome.entrant
            for measure in MEASURES:
                clock = entrant.steps_clock if measure.name == "steps" else entrant.clock
                head = [measure.name, measure.unit, entrant.name, outcome.versions, clock]
                for count, samples in enumerate(outcome.rounds, start=1):
                    if (value := measure.of([samples])) is not None:
                        writer.writerow([*head, count, f"{value:.6g}", ""])
                for line in lines:
                    if line.measure is measure and line.entrant == entrant.name:
                        lead = "" if line.lead is None else f"{line.lead:.4g}"
                        writer.writerow([*head, "all", f"{line.value:.6g}", lead])


def write_page(
    path: Path, outcomes: Sequence[Outcome], lines: Sequence[Line], told: Mapping[str, str]
) -> None:
    parts = [f"<title>pgjobs and its peers</title><style>{chart.STYLE}</style><h1>pgjobs and its peers</h1>"]
    parts.append(_definitions(told))
    for measure, found in by_measure(lines):
        better = "more is better" if measure.more_is_better else "less is better"
        parts.append(f"<h2>{escape(measure.label)}, {escape(measure.unit)} ({better})</h2>")
        parts.append(
            chart.bars(
                [chart.Bar(line.entrant, line.value, _beside(line), line.entrant == OURS) for line in found],
                measure.label,
            )
        )
    parts.append(f"<p>{escape(LEAD)}</p><h2>Versions and settings</h2>")
    parts.append(
        _definitions(
            {outcome.entrant.name: "; ".join([outcome.versions, *remarks(outcome)]) for outcome in outcomes}
        )
    )
    body = "\n".join(parts)
    path.write_text(
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8">\n{body}\n</html>\n', encoding="utf-8"
    )


def _beside(line: Line) -> str:
    return number(line.value) if line.lead is None else f"{number(line.value)} (pgjobs × {number(line.lead)})"


def _definitions(pairs: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(term)}<dd>{escape(words)}" for term, words in pairs.items())
    return f"<dl>{rows}</dl>"
