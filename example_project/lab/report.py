"""The report: one HTML file that needs neither network nor script."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.template.loader import render_to_string

from example_project.benchmark.figures import number, percent
from example_project.lab import pictures, published, sentences
from example_project.lab.run import Results
from example_project.lab.throughput import Cell, efficiency

NAME = "report.html"


def write(results: Results, folder: Path) -> Path:
    """Write ``report.html`` into ``folder`` and return its path."""
    page = folder / NAME
    page.write_text(render_to_string("lab/report.html", context(results)), encoding="utf-8")
    return page


def summary(results: Results) -> list[str]:
    """What a terminal is told."""
    return [
        *sentences.of_handouts(results.cells),
        *sentences.of_depths(results.depths, results.indexes)[:2],
        *sentences.of_crash(results.story)[-1:],
    ]


def context(results: Results) -> dict[str, Any]:
    plan = results.plan
    return {
        "machine": results.machine,
        "plan": {name.replace("_", " "): _shown(value) for name, value in asdict(plan).items()},
        "seconds": results.seconds,
        "comparisons": published.comparisons(results),
        "handouts": sentences.of_handouts(results.cells),
        "scaling": sentences.of_scaling(results.cells),
        "cells": [_cell(results, cell) for cell in results.cells],
        "activity": sentences.of_activity(results.activities),
        "activities": results.activities,
        "buried": sentences.of_depths(results.depths, results.indexes),
        "depths": results.depths,
        "crash": sentences.of_crash(results.story),
        "samples": results.story.samples,
        "pictures": {
            "throughput": pictures.throughput(results.cells),
            "executions": pictures.executions(results.cells),
            "idle": pictures.idle_in_transaction(results.activities),
            "buffers": pictures.buffers(results.depths),
            "indexes": pictures.index_sizes(results.indexes),
            "crash": pictures.crash(results.story),
        },
    }


def _cell(results: Results, cell: Cell) -> list[str]:
    together = f" ({cell.processes} × {cell.slots})" if cell.slots > 1 else ""
    return [
        cell.strategy,
        f"{cell.workers}{together}",
        f"{cell.executions:,}",
        f"{cell.duplicates:,}",
        percent(cell.wasted),
        number(cell.jobs_per_second),
        percent(efficiency(results.cells, cell), 1),
        number(cell.claim_p50_ms),
        number(cell.claim_p95_ms),
        f"{cell.attempt_drift:+,}",
        f"{cell.worst_job}: to {cell.worst_workers} in {number(cell.worst_within_ms)} ms"
        if cell.worst_workers > 1
        else "–",
    ]


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value:,}"
