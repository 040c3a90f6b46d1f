"""Views of the job table that the admin lists as pages of their own. No columns, no permissions, no verbs."""

from __future__ import annotations

from pgjobs.queue.models import Job


class Overview(Job):
    """Whether anything is wrong, and what to look at first."""

    class Meta:
        proxy = True
        # All pages of jobs are opened by the permissions of Job; their own would only be noise.
        default_permissions = ()
        verbose_name = "overview"
        verbose_name_plural = "overview"


class System(Job):
    """Whether the database side is healthy, and whether the other pages can be trusted."""

    class Meta:
        proxy = True
        default_permissions = (
            "view",
        )  # its own: it tells of the server, of other applications and of the settings
        verbose_name = "system"
        verbose_name_plural = "system"


class ErrorGroup(Job):
    """Jobs that ended badly, by what went wrong."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "error"
        verbose_name_plural = "errors"


class RunningJob(Job):
    """Jobs that a worker holds."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "running job"
        verbose_name_plural = "running"


class DeadJob(Job):
    """Jobs that ended without success: ``dead`` and ``failed``."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "dead job"
        verbose_name_plural = "dead"


class Queue(Job):
    """Jobs that wait, by queue."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "queue"
        verbose_name_plural = "queues"


class TaskType(Job):
    """Jobs by their type."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = "task"
        verbose_name_plural = "tasks"
