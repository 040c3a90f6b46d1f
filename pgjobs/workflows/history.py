"""What an execution has recorded so far, as its replay sees it; and whether the code still calls the same things."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Model

from pgjobs import codec
from pgjobs.connections import rows
from pgjobs.exceptions import Diverged, NotStorable

INLINE_BYTES = 32_768
"""Outputs up to this size are loaded with the claim; larger ones when the body reads them."""

_STEPS = """
SELECT execution_id, step_id, kind, ordinal, arguments_hash, recorded_at,
       CASE WHEN output_bytes <= %(inline)s THEN output::text END, error::text, output_bytes > %(inline)s
FROM pgjobs_stepoutput WHERE execution_id = ANY(%(ids)s::bigint[])"""

# Without the members of what is recorded as a whole: a gather's results would be loaded twice, for ever.
_WAITS = """
SELECT execution_id, step_id, kind, ordinal, arguments_hash, COALESCE(resolved_at, created_at),
       resolution::text, resolved_at IS NOT NULL, id, "group"
FROM pgjobs_wait AS wait
WHERE execution_id = ANY(%(ids)s::bigint[])
  AND ("group" = '' OR NOT EXISTS (SELECT FROM pgjobs_stepoutput AS whole
                                   WHERE whole.execution_id = wait.execution_id AND whole.step_id = wait."group"))"""

_OUTPUT = "SELECT output::text FROM pgjobs_stepoutput WHERE execution_id = %(id)s AND step_id = %(step_id)s"


_ALIKE = {"step", "atomic"}
"""Kinds whose records answer each other's calls."""


@dataclass(slots=True)
class Record:
    """One durable call of the past: a step with its output, or a wait with its resolution."""

    step_id: str
    kind: str
    ordinal: int
    arguments_hash: str
    at: dt.datetime | None = None
    """When it was recorded or resolved, by the database's clock."""
    output: str | None = None
    error: str | None = None
    deferred: bool = False
    """The output is too large to have been loaded with the rest."""
    is_wait: bool = False
    resolved: bool = True
    wait_id: int | None = None
    group: str = ""

    def resolution(self) -> dict[str, Any]:
        """What a resolved wait came to."""
        decoded = codec.loads(self.output or "{}")
        return decoded if isinstance(decoded, dict) else {}


@dataclass(slots=True)
class History:
    """The records of one execution, by step id."""

    execution_id: int
    records: dict[str, Record] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    tolerant: bool = False
    """Divergence is only noted (``on_divergence="warn"``)."""
    warnings: list[str] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Note a record that was written in this turn, or loaded."""
        self.records[record.step_id] = record

    def find(self, step_id: str, kind: str, ordinal: int, arguments_hash: str) -> Record | None:
        """The record of this call, or None when it has never been made.

        Raises :class:`Diverged` when the history tells of another call at this place. What a call of another kind
        came to cannot answer this one, so that is not tolerated either.
        """
        record = self.records.get(step_id)
        self._seen.add(step_id)
        if record is None:
            self._expect_end(step_id, kind, ordinal)
            return None
        if record.kind != kind:
            told = f"the history has a {record.kind} here, the code calls a {kind}"
            self._diverged(step_id, told, tolerable={record.kind, kind} <= _ALIKE)
        elif record.ordinal != ordinal:
            self._diverged(
                step_id, f"the history has it as call {record.ordinal}, the code as call {ordinal}"
            )
        elif record.arguments_hash and arguments_hash and record.arguments_hash != arguments_hash:
            self._diverged(
                step_id, f"its arguments are others (hash {record.arguments_hash} then, {arguments_hash} now)"
            )
        return record

    def group(self, step_id: str) -> list[Record]:
        """The waits of a gather, in the order of its items."""
        found = [record for record in self.records.values() if record.group == step_id]
        return sorted(found, key=lambda record: int(record.step_id.rpartition("[")[2].rstrip("]")))

    def ended(self) -> None:
        """The body has returned. Raises :class:`Diverged` when the history tells of calls it no longer makes."""
        left = self._unseen()
        if left:
            first = left[0]
            self._diverged(
                first.group or first.step_id,
                f"the history has it as call {first.ordinal}, the code returned without calling it",
            )

    def beyond(self, ordinal: int) -> bool:
        """Whether the history goes on at or after this call."""
        return any(record.ordinal >= ordinal for record in self._unseen())

    def _unseen(self) -> list[Record]:
        found = [
            record for record in self.records.values() if (record.group or record.step_id) not in self._seen
        ]
        return sorted(found, key=lambda record: record.ordinal)

    def _expect_end(self, step_id: str, kind: str, ordinal: int) -> None:
        later = [record for record in self._unseen() if record.ordinal >= ordinal]
        if later:
            first = later[0]
            self._diverged(
                step_id,
                f"the code calls this {kind} as call {ordinal}, where the history has {first.kind} "
                f"{first.group or first.step_id!r} as call {first.ordinal}",
            )

    def refuse(self, step_id: str, both_sides: str) -> None:
        """Raise :class:`Diverged` for a call that nothing recorded can answer, whatever is tolerated."""
        self._diverged(step_id, both_sides, tolerable=False)

    def _diverged(self, step_id: str, both_sides: str, *, tolerable: bool = True) -> None:
        told = (
            f"{step_id!r}: {both_sides}. Bring the code back to what the history tells, or mark the change with "
            f"ctx.changed(...), then resume the execution."
        )
        if not (self.tolerant and tolerable):
            raise Diverged(told)
        self.warnings.append(told)


def load(ids: Sequence[int], *, using: str) -> dict[int, History]:
    """The histories of claimed executions: two queries for all of them."""
    histories = {pk: History(pk) for pk in ids}
    params = {"ids": list(ids), "inline": INLINE_BYTES}
    for pk, step_id, kind, ordinal, arguments, at, output, error, deferred in rows(using, _STEPS, params):
        histories[pk].add(Record(step_id, kind, ordinal, arguments, at, output, error, deferred))
    for pk, step_id, kind, ordinal, arguments, at, resolution, resolved, wait_id, group in rows(
        using, _WAITS, params
    ):
        record = Record(step_id, kind, ordinal, arguments, at, resolution)
        record.is_wait, record.resolved, record.wait_id, record.group = True, resolved, wait_id, group
        histories[pk].add(record)
    return histories


def read_output(execution_id: int, step_id: str, *, using: str) -> str | None:
    """One large output, read when the body comes to it."""
    found = rows(using, _OUTPUT, {"id": execution_id, "step_id": step_id})
    return found[0][0] if found else None


def hash_arguments(*parts: Any) -> str:
    """A short hash of a call's arguments: equal arguments give equal hashes in every process.

    Model instances count by their key, other objects that are no JSON by their type alone.
    """
    text = json.dumps([_canonical(part) for part in parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    if isinstance(value, Model):
        return [value._meta.label, str(value.pk)]
    if isinstance(value, dict):
        return {str(key): _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    try:
        return codec.dumps(value, label="argument", max_bytes=1 << 30)
    except NotStorable:
        return type(value).__qualname__
