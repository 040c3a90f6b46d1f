"""The operator's pages. They only show; rows are moved by verbs alone."""

from pgjobs.admin import (
    activity,
    approvals,
    archived,
    audit,
    bulk,
    errors,
    jobs,
    overview,
    queues,
    running,
    system,
    tasktypes,
    workers,
    workflows,
)

__all__ = [
    "activity",
    "approvals",
    "archived",
    "audit",
    "bulk",
    "errors",
    "jobs",
    "overview",
    "queues",
    "running",
    "system",
    "tasktypes",
    "workers",
    "workflows",
]
