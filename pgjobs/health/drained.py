"""What a drain leaves behind, in one line: that nothing is runnable does not mean that nothing is there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from pgjobs.connections import rows
from pgjobs.health.phrases import many, span
from pgjobs.leases.lanes import not_paused, table_of
from pgjobs.worker.kinds import KINDS, Kind
from pgjobs.workflows.models import Execution

MOST = 10_000
"""Rows of each table and state that are looked at."""

_CLAIMABLE = """
(SELECT CASE WHEN t.{kind} <> ALL(%({label})s::text[]) THEN 'unknown' WHEN NOT ({open}) THEN 'paused'
             WHEN t.crash_count > 0 THEN 'suspect' WHEN t.available_at > statement_timestamp() THEN 'later'
             ELSE 'due' END AS what, t.available_at AS at
 FROM {table} AS t WHERE status = '{claimable}' AND t.crash_count {crashes} AND {named} LIMIT %(most)s)"""
_OTHERS = """
(SELECT '{what}', NULL FROM {table} AS t WHERE status = '{status}' AND {named} LIMIT %(most)s)"""
_NAMED = "(cardinality(%(queues)s::text[]) = 0 OR t.queue = ANY(%(queues)s::text[]))"

_WORDS = (
    ("due", "{n} due"),
    ("later", "{n} not due yet"),
    ("paused", "{n} in paused queues or of paused types"),
    ("unknown", "{n} of types that this code does not know"),
    ("suspect", "{n} whose worker died"),
    ("running", "{n} running elsewhere"),
)


def left_behind(queues: Sequence[str], *, using: str) -> str:
    """The line, about these queues or all. Raises what the database raises."""
    sql = " UNION ALL ".join(part for kind in KINDS for part in _parts(kind))
    params = {kind.model.LEASE.label: kind.names() for kind in KINDS}
    found = rows(
        using,
        f"SELECT what, count(*), min(at) - statement_timestamp() FROM ({sql}) AS left_ GROUP BY what",  # noqa: S608
        {**params, "queues": list(queues), "most": MOST + 1},
    )
    counts: dict[str, tuple[int, dt.timedelta | None]] = {
        what: (number, wait) for what, number, wait in found
    }
    told, of = ", ".join(_told(counts)), f" of {', '.join(queues)}" if queues else ""
    if not told:
        return f"The drain is over: nothing{of} is left."
    return f"The drain is over. Left behind{of}: {told}. See: manage.py pgjobs_status"


def _parts(kind: Kind) -> Iterator[str]:
    model = kind.model
    words = {"table": table_of(model), "named": _NAMED, "kind": model.LEASE.kind_column}
    words |= {"label": model.LEASE.label, "claimable": model.LEASE.claimable}
    words["open"] = (
        f"{not_paused('t.queue', 'queue')} AND {not_paused(f't.{model.LEASE.kind_column}', 'type')}"
    )
    for crashes in ("= 0", "> 0"):  # the halves have an index each
        yield _CLAIMABLE.format(crashes=crashes, **words)
    yield _OTHERS.format(what="running", status="running", **words)
    if model is Execution:
        for status in ("waiting", "paused"):
            yield _OTHERS.format(what=f"execution {status}", status=status, **words)


def _told(counts: dict[str, tuple[int, dt.timedelta | None]]) -> Iterator[str]:
    for what, words in _WORDS:
        number, wait = counts.get(what, (0, None))
        if number:
            told = words.format(n=f"{MOST:,}+" if number > MOST else f"{number:,}")
            yield f"{told} (the next in {span(wait)})" if what == "later" and wait else told
    for status in ("waiting", "paused"):
        number, _ = counts.get(f"execution {status}", (0, None))
        if number:
            yield many(number, f"{status} execution", MOST)
