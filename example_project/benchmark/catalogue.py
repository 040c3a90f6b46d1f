"""The measurements of pgjobs by name: those of every run, those of ``--all``, and what takes minutes of waiting."""

from example_project.benchmark import (
    beneath,
    drain,
    durable,
    enqueuing,
    held_snapshot,
    idle,
    orphans,
    pickup,
    processes,
    slow_jobs,
)
from example_project.benchmark.bench import Measurement

BASIC: dict[str, Measurement] = {
    "drain": drain.measure,
    "enqueue": enqueuing.measure,
    "pickup": pickup.measure,
    "idle": idle.measure,
}
FURTHER: dict[str, Measurement] = {
    "processes": processes.measure,
    "completed": beneath.completed,
    "future": beneath.future,
    "snapshot": held_snapshot.measure,
    "slow": slow_jobs.measure,
    "orphans": orphans.of_a_process,
    "steps": durable.steps,
    "replay": durable.replay,
    "sleepers": durable.sleepers,
}
SLOW: dict[str, Measurement] = {"lost-host": orphans.of_a_host}
