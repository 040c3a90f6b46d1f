"""The operator's pages. They only show; rows are moved by verbs alone."""

from pgjobs.admin import (
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
    workers,
    workflows,
)

__all__ = [
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
    "workers",
    "workflows",
]
