"""Tables: dead rows, bloat, and whether autovacuum does its work on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps

from pgjobs.doctor.findings import CRITICAL, WARNING, Finding, Patient, megabytes, span

_HOT = {
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.02",
    "autovacuum_analyze_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "1",
}
STORAGE = {
    "pgjobs_job": {"fillfactor": "70", **_HOT, "autovacuum_vacuum_insert_scale_factor": "0.05"},
    "pgjobs_execution": {"fillfactor": "70", **_HOT},
    "pgjobs_wait": {"fillfactor": "80"},
    "pgjobs_worker": {"fillfactor": "50"},
    "pgjobs_minute": {
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.05",
        "autovacuum_vacuum_threshold": "1000",
    },
}
"""What the migrations set. Other values are somebody's choice; none at all means that they were lost."""

_LOOK = """
SELECT named.name, held.oid, held.reltuples::float8, pg_relation_size(held.oid), COALESCE(held.reloptions, '{}'),
       COALESCE(stat.n_live_tup, 0), COALESCE(stat.n_dead_tup, 0),
       extract(epoch FROM clock_timestamp() - GREATEST(stat.last_vacuum, stat.last_autovacuum))::float8,
       (SELECT sum((1 - null_frac) * avg_width)::float8 FROM pg_stats
        WHERE schemaname = held.relnamespace::regnamespace::text AND tablename = held.relname),
       held.relkind = 'p'
FROM unnest(%(tables)s::text[]) AS named(name)
LEFT JOIN pg_class AS held ON held.oid = to_regclass(named.name)
LEFT JOIN pg_stat_user_tables AS stat ON stat.relid = held.oid
ORDER BY named.name"""

_ROW_OVERHEAD = 24 + 4 + 8  # header, line pointer, and about as much for alignment
_PAGE = 8_192 - 24


@dataclass(frozen=True, slots=True)
class Table:
    """One table as the catalogue and the statistics have it."""

    name: str
    oid: int | None
    estimated_rows: float
    size: int
    given: list[str]
    live: int
    dead: int
    vacuumed_ago: float | None
    row_width: float | None
    partitioned: bool

    @property
    def options(self) -> dict[str, str]:
        """Its storage parameters."""
        return dict(each.split("=", 1) for each in self.given)


def own_models() -> list[Any]:
    """The models that have a table of their own."""
    return [each for each in apps.get_app_config("pgjobs").get_models() if not each._meta.proxy]


def tables(patient: Patient) -> list[Table]:
    """All tables of pgjobs, also those that are missing."""
    return [Table(*row) for row in patient.once(_LOOK, tables=[m._meta.db_table for m in own_models()])]


def probe_tables(patient: Patient) -> Iterator[Finding]:
    """Table by table."""
    server = {name: setting for name, (setting, _) in patient.settings.items()}
    for table in tables(patient):
        if table.oid is None:
            yield Finding(
                "missing-table",
                CRITICAL,
                f"The table {table.name} is not on the search_path.",
                "not there",
                "Run manage.py migrate, or correct the search_path of the connection or the role.",
            )
        elif not table.partitioned:
            for part in (_dead, _bloat, _autovacuum, _storage):
                yield from part(patient, table, server)


def _dead(patient: Patient, table: Table, server: dict[str, str]) -> Iterator[Finding]:
    limits = patient.thresholds
    share = table.dead / max(table.live + table.dead, 1)
    if table.dead > limits.dead_rows and share > limits.dead_share:
        ago = "never vacuumed" if table.vacuumed_ago is None else f"vacuumed {span(table.vacuumed_ago)} ago"
        yield Finding(
            "dead-rows",
            CRITICAL if share > 0.8 and table.dead > 20 * limits.dead_rows else WARNING,
            f"{table.name} has {table.dead:,} dead rows beside {table.live:,} live ones.",
            f"{share:.0%} dead, {ago}",
            f"VACUUM (VERBOSE) {table.name}; if it says that rows cannot be removed yet, end what holds the oldest "
            f"snapshot (old-snapshot, prepared-transaction, replication-slot).",
        )


def _bloat(patient: Patient, table: Table, server: dict[str, str]) -> Iterator[Finding]:
    """An estimate by the statistics of ANALYZE; what is stored out of line does not count on either side."""
    limits = patient.thresholds
    if table.row_width is None or table.estimated_rows < 0:
        return
    per_page = max(
        _PAGE * int(table.options.get("fillfactor", "100")) / 100 // (table.row_width + _ROW_OVERHEAD), 1
    )
    needed = (table.estimated_rows / per_page + 1) * 8_192
    wasted = table.size - needed
    if wasted > limits.bloat_bytes and table.size > limits.bloat_factor * needed:
        yield Finding(
            "table-bloat",
            WARNING,
            f"{table.name} takes {megabytes(table.size)} where its rows need about {megabytes(needed)}.",
            f"{megabytes(wasted)} more than needed",
            f"The room is used again by new rows. To give it back: pg_repack, or VACUUM FULL {table.name} while the "
            f"workers are stopped. First cure what let it grow, such as an old snapshot or missing retention.",
        )


def _autovacuum(patient: Patient, table: Table, server: dict[str, str]) -> Iterator[Finding]:
    if table.options.get("autovacuum_enabled", "on").lower() in ("false", "off", "no", "0"):
        yield Finding(
            "autovacuum-off",
            CRITICAL if table.name in STORAGE else WARNING,
            f"Autovacuum is turned off for {table.name}.",
            f"{table.dead:,} dead rows",
            f"ALTER TABLE {table.name} RESET (autovacuum_enabled);",
        )
    threshold, scale = (
        float(table.options.get(name, server[name]))
        for name in ("autovacuum_vacuum_threshold", "autovacuum_vacuum_scale_factor")
    )
    trigger = threshold + scale * max(table.estimated_rows, 0)
    waited = table.vacuumed_ago is None or table.vacuumed_ago >= patient.thresholds.vacuum_seconds
    if table.dead > 2 * trigger and waited:
        since = "never" if table.vacuumed_ago is None else f"{span(table.vacuumed_ago)} ago"
        yield Finding(
            "vacuum-lag",
            WARNING,
            f"{table.name} is due for autovacuum: {table.dead:,} dead rows, {trigger:,.0f} are enough.",
            f"last vacuum: {since}",
            f"VACUUM {table.name}; then see why autovacuum does not come: is it off, are its workers busy "
            f"(pg_stat_progress_vacuum; raise autovacuum_max_workers), does something hold a lock on the table?",
        )


def _storage(patient: Patient, table: Table, server: dict[str, str]) -> Iterator[Finding]:
    missing = {k: v for k, v in STORAGE.get(table.name, {}).items() if k not in table.options}
    if missing:
        setting = ", ".join(f"{name} = {value}" for name, value in missing.items())
        yield Finding(
            "storage-parameters",
            WARNING,
            f"{table.name} has lost storage parameters that the migrations set: {', '.join(missing)}.",
            f"{len(missing)} missing",
            f"ALTER TABLE {table.name} SET ({setting});",
        )
