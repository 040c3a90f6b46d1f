from dataclasses import replace

from example_project.benchmark.peers.entrant import Entrant

DBOS = Entrant(
    name="dbos",
    packages=("dbos", "psycopg[binary]"),
    settings=(
        "a queue with worker_concurrency (its queue tutorial) and polling_interval_sec=0.05: with its default of 1 s "
        "it would start no more than the bound each second",
        "sync workflows and steps; LISTEN/NOTIFY on (its default)",
        "bulk: one call a workflow, there is none for many",
    ),
    unfinished="SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))",
    succeeded="SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'",
    span="SELECT (max(updated_at) - min(started_at_epoch_ms))::float8 / 1000 FROM dbos.workflow_status",
    clock="worker",
    steps_unfinished="SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))",
    steps_recorded="SELECT count(*) FROM dbos.operation_outputs",
    steps_span="SELECT (max(updated_at) - min(started_at_epoch_ms))::float8 / 1000 FROM dbos.workflow_status",
    steps_clock="worker",
)
DBOS_UNBOUNDED = replace(
    DBOS,
    name="dbos-unbounded",
    program="dbos",
    variant="unbounded",
    settings=(
        "as dbos, with no bound on the queue, more than the concurrency of the others",
        "polled every second (its default)",
    ),
    steps_unfinished="",
)
