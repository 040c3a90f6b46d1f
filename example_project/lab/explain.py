"""EXPLAIN (ANALYZE, BUFFERS) of the product's claim: the very statement that a worker sent."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import psycopg

EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
TABLE = "pgjobs_job"
CHANGING = "ModifyTable"


@dataclass(frozen=True)
class Explained:
    """What one plan says; medians of several tries where it varies."""

    node: str
    index: str
    find_buffers: int
    """Pages touched by what finds and locks the job."""
    buffers: int
    """Pages touched by the whole statement."""
    milliseconds: float


def explain(connection: psycopg.Connection, statement: str, tries: int) -> Explained:
    """Run ``statement`` so many times, rolled back each time, so that every try finds the same table."""
    plans = [_plan(connection, statement) for _ in range(tries)]
    reading = _reading(plans[0]["Plan"])
    return Explained(
        node=reading["Node Type"],
        index=reading.get("Index Name", ""),
        find_buffers=round(median(_find_buffers(plan["Plan"]) for plan in plans)),
        buffers=round(median(_buffers(plan["Plan"]) for plan in plans)),
        milliseconds=median(plan["Execution Time"] for plan in plans),
    )


def _plan(connection: psycopg.Connection, statement: str) -> dict[str, Any]:
    with connection.transaction(force_rollback=True):
        row = connection.execute(f"{EXPLAIN}{statement}").fetchone()
    assert row is not None
    return dict(row[0][0])


def _reading(plan: dict[str, Any]) -> dict[str, Any]:
    """The scan that decides about the time: a sequential one anywhere, else the one whose row is locked."""
    finding = [node for cte in _ctes(plan) if not _changes(cte) for node in _nodes(cte)]
    locking = [inner for node in finding if node["Node Type"] == "LockRows" for inner in _nodes(node)]
    scans = [node for node in (*finding, *locking) if node.get("Relation Name") == TABLE]
    whole = [node for node in scans if node["Node Type"] == "Seq Scan"]
    return (whole or [node for node in locking if node in scans])[0]


def _find_buffers(plan: dict[str, Any]) -> int:
    """Of the common table expression that the update takes its job from.

    A node's count includes what it pulls from others, so of all expressions that change nothing the last one,
    which pulls from the rest, has the greatest.
    """
    return max(_buffers(node) for node in _ctes(plan) if not _changes(node))


def _ctes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in _nodes(plan) if node.get("Subplan Name", "").startswith("CTE ")]


def _changes(node: dict[str, Any]) -> bool:
    return any(inner["Node Type"] == CHANGING for inner in _nodes(node))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _buffers(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])
