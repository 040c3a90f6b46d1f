"""The parts of an examination: what each probe looks at, and what may be said where it finds nothing."""

from __future__ import annotations

from dataclasses import dataclass

from pgjobs.doctor.findings import Probe
from pgjobs.doctor.indexes import probe_indexes
from pgjobs.doctor.project import (
    probe_debug,
    probe_listener,
    probe_migrations,
    probe_pooler,
    probe_trigger,
)
from pgjobs.doctor.server import probe_connections, probe_settings, probe_writable
from pgjobs.doctor.sessions import (
    probe_notifications,
    probe_prepared,
    probe_slots,
    probe_snapshots,
    probe_standbys,
    probe_visibility,
)
from pgjobs.doctor.tables import probe_tables
from pgjobs.doctor.work import (
    probe_leases,
    probe_retention,
    probe_turns,
    probe_unknown,
    probe_unknown_workflows,
    probe_unserved,
    probe_workers,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One probe."""

    probe: Probe
    title: str
    fine: str
    """What is known when it finds nothing."""
    of_work: bool = False
    """Of jobs and workers rather than of the database: the overview looks at it all the time."""


PARTS = (
    Part(probe_writable, "Writes", "The database takes writes."),
    Part(probe_migrations, "Migrations", "All migrations of this code are applied."),
    Part(probe_unserved, "Served queues", "All due work has a live worker.", of_work=True),
    Part(probe_leases, "Leases", "No lease has lapsed.", of_work=True),
    Part(probe_workers, "Workers", "No worker is silent or hangs.", of_work=True),
    Part(probe_unknown, "Job types", "This code has a handler for all that waits.", of_work=True),
    Part(probe_unknown_workflows, "Workflows", "This code has all workflows that wait.", of_work=True),
    Part(probe_turns, "Turns", "No turn of a workflow lingers.", of_work=True),
    Part(probe_snapshots, "Oldest transaction", "No session holds an old snapshot."),
    Part(probe_prepared, "Prepared transactions", "None waits for its second phase."),
    Part(probe_slots, "Replication slots", "None holds back vacuum or WAL."),
    Part(probe_standbys, "Standbys", "None reports an old snapshot."),
    Part(probe_tables, "Tables", "All are there, vacuumed, and not bloated."),
    Part(probe_indexes, "Indexes", "All are there and valid, and none is superfluous or bloated."),
    Part(probe_settings, "Settings of the server", "None that hurts is set."),
    Part(probe_connections, "Connections", "There are enough for the live workers."),
    Part(probe_pooler, "Pooler", "None is in between, or the settings suit it."),
    Part(probe_listener, "LISTEN", "The live workers hear of new jobs, or NOTIFY is off."),
    Part(probe_trigger, "NOTIFY", "The trigger sends it, or NOTIFY is off."),
    Part(probe_notifications, "Queue of notifications", "There is room."),
    Part(probe_debug, "DEBUG", "It is off in this process."),
    Part(probe_retention, "Retention", "What is old leaves the table, as the settings say."),
    Part(probe_visibility, "Visibility", "The role sees the sessions of all others."),
)
