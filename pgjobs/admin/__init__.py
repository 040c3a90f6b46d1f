"""The operator's pages: jobs, running, dead, backlog, workers. All read-only; jobs are moved by verbs alone."""

from pgjobs.admin import backlog, jobs, workers

__all__ = ["backlog", "jobs", "workers"]
