"""Filters of the job lists. None of them reads the job table to offer its choices, or reads it within bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Max, Q, QuerySet
from django.http import HttpRequest

from pgjobs.queue import stats
from pgjobs.queue.models import Job
from pgjobs.queue.registry import registry
from pgjobs.queue.states import JobStatus

WINDOW = 100_000
"""How many of the newest ids a list looks through when no index serves its filters."""

# `pending` is spelled as the two halves that the partial indexes cover.
_PENDING = Q(status=JobStatus.PENDING.value) & (Q(crash_count=0) | Q(crash_count__gt=0))


class _Filter(admin.SimpleListFilter):
    """A filter that accepts values beyond its choices, since rows outlive handlers and queues."""

    def names(self) -> Iterable[str]:
        """The values to offer."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The values to offer, and the one in force."""
        chosen = self.value()
        names = list(self.names())
        if chosen is not None and chosen not in names:
            names.append(chosen)
        return [(name, name) for name in names]

    def has_output(self) -> bool:
        """Always, so that a value in the address is never ignored in silence."""
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows with the chosen value."""
        value = self.value()
        if value is None:
            return queryset
        return queryset.none() if "\x00" in value else queryset.filter(self.condition(value))

    def condition(self, value: str) -> Q:
        """The predicate of one value."""
        return Q(**{str(self.parameter_name): value})


class StatusFilter(_Filter):
    """By status."""

    title = "status"
    parameter_name = "status"

    def names(self) -> Iterable[str]:
        """All statuses."""
        return JobStatus.values

    def condition(self, value: str) -> Q:
        """Spelled so that the partial indexes serve it."""
        return _PENDING if value == JobStatus.PENDING.value else Q(status=value)


class EndedStatusFilter(StatusFilter):
    """By how a job ended badly."""

    def names(self) -> Iterable[str]:
        """The two statuses of the page."""
        return [JobStatus.DEAD.value, JobStatus.FAILED.value]


class QueueFilter(_Filter):
    """By queue."""

    title = "queue"
    parameter_name = "queue"

    def names(self) -> Iterable[str]:
        """Queues in use."""
        return stats.queue_names()


class JobTypeFilter(_Filter):
    """By job type."""

    title = "job type"
    parameter_name = "job_type"

    def names(self) -> Iterable[str]:
        """Job types that this process knows."""
        return registry.names()


def window_floor(using: str) -> int:
    """The newest :data:`WINDOW` ids are above this one."""
    newest = Job._base_manager.using(using).aggregate(newest=Max("pk"))["newest"] or 0
    return int(newest) - WINDOW
