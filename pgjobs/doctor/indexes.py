"""Indexes: those of the models must be there and valid; others on hot tables must earn what they cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connections, models
from django.db.models import UniqueConstraint

from pgjobs.doctor.findings import CRITICAL, WARNING, Finding, Patient, megabytes
from pgjobs.doctor.tables import STORAGE, own_models

_RENEWED = {"heartbeat_at", "lease_expires_at", "progress", "last_poll_at", "updated_at"}
"""Columns that change while a row is held: an index on one makes every renewal write every index."""

_VITAL = ("_claim", "_suspect", "_running", "_due", "_target")
"""Ends of names of indexes without which claims, renewals or wake-ups read whole tables."""

_LOOK = """
SELECT rel.relname, idx.relname, i.indisvalid, i.indisprimary, i.indisunique,
       ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = i.indexrelid ORDER BY attnum),
       COALESCE(stat.idx_scan, 0), pg_relation_size(i.indexrelid), idx.reltuples::float8,
       i.indnkeyatts = 1
FROM pg_index AS i JOIN pg_class AS rel ON rel.oid = i.indrelid JOIN pg_class AS idx ON idx.oid = i.indexrelid
LEFT JOIN pg_stat_user_indexes AS stat ON stat.indexrelid = i.indexrelid
WHERE i.indrelid IN (SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS name)
ORDER BY rel.relname, idx.relname"""


@dataclass(frozen=True, slots=True)
class Index:
    """One index as the catalogue has it."""

    table: str
    name: str
    valid: bool
    primary: bool
    unique: bool
    columns: list[str]
    scans: int
    size: int
    entries: float
    """Estimated; -1 when nobody has looked yet."""
    single: bool


def probe_indexes(patient: Patient) -> Iterator[Finding]:
    """Against the models, then by itself."""
    found: dict[str, list[Index]] = {model._meta.db_table: [] for model in own_models()}
    for index in _all(patient):
        found[index.table].append(index)
    for model in own_models():
        present = found[model._meta.db_table]
        if not present:
            continue  # the table is missing, which is a finding of its own
        expected = _expected(model)
        yield from _missing(patient, model, present)
        automatic = {f.column for f in model._meta.concrete_fields if f.unique or f.db_index}
        for index in present:
            ours = index.name in expected or index.primary or (index.single and index.columns[0] in automatic)
            yield from _one(patient, index, ours)


def sizes(patient: Patient) -> dict[str, int]:
    """By table, the bytes that its indexes take."""
    found: Counter[str] = Counter()
    for index in _all(patient):
        found[index.table] += index.size
    return dict(found)


def _all(patient: Patient) -> list[Index]:
    return [Index(*row) for row in patient.once(_LOOK, tables=[m._meta.db_table for m in own_models()])]


def _missing(patient: Patient, model: Any, present: list[Index]) -> Iterator[Finding]:
    table = model._meta.db_table
    names = {index.name for index in present}
    if not any(index.primary for index in present):
        yield _absent(table, "primary key", True, f"ALTER TABLE {table} ADD PRIMARY KEY (id);")
    for name, each in sorted(_expected(model).items()):
        if name not in names:
            vital = isinstance(each, UniqueConstraint) or name.endswith(_VITAL)
            yield _absent(table, f"index {name}", vital, _statement(patient, model, each))


def _absent(table: str, what: str, vital: bool, cure: str) -> Finding:
    return Finding(
        "missing-index",
        CRITICAL if vital else WARNING,
        f"{table} has no {what}.",
        "statements that rely on it read the whole table",
        cure,
    )


def _expected(model: Any) -> dict[str, models.Index | UniqueConstraint]:
    unique = [each for each in model._meta.constraints if isinstance(each, UniqueConstraint)]
    return {each.name: each for each in (*model._meta.indexes, *unique)}


def _statement(patient: Patient, model: Any, each: models.Index | UniqueConstraint) -> str:
    """What makes it, in a way that does not stop the workers where there is one."""
    with connections[patient.using].schema_editor(collect_sql=True, atomic=False) as editor:
        if isinstance(each, UniqueConstraint):
            editor.add_constraint(model, each)
        else:
            editor.add_index(model, each)
    statement = " ".join(editor.collected_sql)
    return re.sub(r"^CREATE (UNIQUE )?INDEX ", r"CREATE \1INDEX CONCURRENTLY ", statement)


def _one(patient: Patient, index: Index, ours: bool) -> Iterator[Finding]:
    if not index.valid:
        yield Finding(
            "invalid-index",
            CRITICAL if ours else WARNING,
            f"The index {index.name} of {index.table} is not valid; every write keeps it up, no plan uses it.",
            megabytes(index.size),
            f"REINDEX INDEX CONCURRENTLY {index.name};"
            + ("" if ours else f" or DROP INDEX CONCURRENTLY {index.name};"),
        )
    elif not ours and index.table in STORAGE:
        yield from _extra(index)
    limits = patient.thresholds
    if index.size > limits.bloat_bytes and index.entries >= 0:
        needed = index.entries * limits.index_entry_bytes
        if index.size > limits.bloat_factor * needed:
            yield Finding(
                "index-bloat",
                WARNING,
                f"The index {index.name} of {index.table} is far larger than its {index.entries:,.0f} entries need.",
                megabytes(index.size),
                f"REINDEX INDEX CONCURRENTLY {index.name};",
            )


def _extra(index: Index) -> Iterator[Finding]:
    changing = sorted(_RENEWED.intersection(index.columns))
    if changing:
        yield Finding(
            "extra-index",
            WARNING,
            f"The index {index.name} of {index.table} is none of pgjobs' and has {', '.join(changing)} in it: "
            f"renewals can no longer be HOT, so each one writes every index of the table.",
            f"{index.scans:,} scans, {megabytes(index.size)}",
            f"DROP INDEX CONCURRENTLY {index.name};",
        )
    elif not index.scans and not index.unique:
        yield Finding(
            "extra-index",
            WARNING,
            f"The index {index.name} of {index.table} is none of pgjobs' and has not been read since the "
            f"statistics began; every job writes it.",
            f"0 scans, {megabytes(index.size)}",
            f"If no rare report needs it: DROP INDEX CONCURRENTLY {index.name};",
        )
