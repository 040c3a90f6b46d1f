"""Views of the job table that the admin lists as pages of their own. No columns, no permissions, no verbs."""

from __future__ import annotations

from pgjobs.queue.models import Job


class RunningJob(Job):
    """Jobs that a worker holds."""

    class Meta:
        proxy = True
        # All pages of jobs are opened by the permissions of Job; their own would only be noise.
        default_permissions = ()
        verbose_name = "running job"
        verbose_name_plural = "running jobs"


class DeadJob(Job):
    """Jobs that ended without success: ``dead`` and ``failed``."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "dead job"
        verbose_name_plural = "dead jobs"


class Backlog(Job):
    """Jobs that wait, by queue."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "backlog"
        verbose_name_plural = "backlog"
