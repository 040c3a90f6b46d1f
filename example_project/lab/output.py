"""The results as CSV files, one per kind of row."""

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from example_project.lab.run import Results
from example_project.lab.throughput import efficiency, linear

SIGNIFICANT = 6


def write(results: Results, folder: Path) -> None:
    """``benchmark.csv`` (throughput), ``claims.csv`` (the claim log) and one file for each other experiment."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = [
        {
            **asdict(cell),
            "linear_jobs_per_second": linear(results.cells, cell),
            "efficiency": efficiency(results.cells, cell),
        }
        for cell in results.cells
    ]
    _write(folder / "benchmark.csv", cells)
    _write(folder / "claims.csv", [asdict(handout) for handout in results.handouts])
    _write(folder / "activity.csv", [asdict(activity) for activity in results.activities])
    _write(folder / "buried.csv", [asdict(depth) for depth in results.depths])
    _write(folder / "indexes.csv", [asdict(size) for size in results.indexes])
    _write(folder / "crash.csv", [asdict(sample) for sample in results.story.samples])


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    return f"{value:.{SIGNIFICANT}g}" if isinstance(value, float) else value
