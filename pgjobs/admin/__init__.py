"""The operator's pages: jobs, running, dead, backlog, workers, workflows. Read-only; rows are moved by verbs alone."""

from pgjobs.admin import approvals, archived, backlog, jobs, workers, workflows

__all__ = ["approvals", "archived", "backlog", "jobs", "workers", "workflows"]
