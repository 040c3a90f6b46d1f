"""Filters of the job lists. None of them reads the job table to offer its choices, or reads it within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from pgjobs.queue import stats
from pgjobs.queue.registry import registry
from pgjobs.queue.states import JobStatus

# `pending` is spelled as the two halves that the partial indexes cover.
PENDING = Q(status=JobStatus.PENDING.value) & (Q(crash_count=0) | Q(crash_count__gt=0))
READY, SCHEDULED, RETRYING = "ready", "scheduled", "retry"


def in_state(name: str) -> Q:
    """Jobs in a status, or in the part of ``pending`` that people call by a name of its own."""
    if name == READY:
        return PENDING & Q(available_at__lte=Now())
    if name == SCHEDULED:
        return PENDING & Q(available_at__gt=Now())
    if name == RETRYING:
        return PENDING & Q(attempt_count__gt=0)
    return PENDING if name == JobStatus.PENDING.value else Q(status=name)


class NamedFilter(admin.SimpleListFilter):
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


class StatusFilter(NamedFilter):
    """By status."""

    title = "status"
    parameter_name = "status"

    def names(self) -> Iterable[str]:
        """All statuses."""
        return [READY, SCHEDULED, RETRYING, *JobStatus.values]

    def condition(self, value: str) -> Q:
        """Spelled so that the partial indexes serve it."""
        return in_state(value)


class EndedStatusFilter(StatusFilter):
    """By how a job ended badly."""

    def names(self) -> Iterable[str]:
        """The two statuses of the page."""
        return [JobStatus.DEAD.value, JobStatus.FAILED.value]


class QueueFilter(NamedFilter):
    """By queue."""

    title = "queue"
    parameter_name = "queue"
    template = "pgjobs/admin/name_filter.html"
    offered = stats.QUEUE_LIMIT
    is_cut = False
    """Whether there are more than are offered; then any is asked for by its name."""
    others: Sequence[tuple[str, str]] = ()
    """The rest of the address, which the form for a name keeps."""

    def names(self) -> Iterable[str]:
        """Queues in use."""
        found = stats.queue_names()
        self.is_cut = len(found) > self.offered
        return found[: self.offered]

    def choices(self, changelist: Any) -> Iterator[Any]:
        """The links, and what the form beside them keeps."""
        kept = changelist.request.GET.lists() if self.is_cut else ()
        dropped = (self.parameter_name, "p", "before_id")
        self.others = [(name, value) for name, values in kept if name not in dropped for value in values]
        return super().choices(changelist)


class JobTypeFilter(NamedFilter):
    """By job type."""

    title = "job type"
    parameter_name = "job_type"

    def names(self) -> Iterable[str]:
        """Job types that this process knows."""
        return registry.names()


class DiscardedFilter(NamedFilter):
    """Discarded jobs are out of sight in the lists of ended ones, unless they are asked for."""

    title = "discarded"
    parameter_name = "discarded"

    def names(self) -> Iterable[str]:
        """What may be asked for beside the default."""
        return ["too", "only"]

    def choices(self, changelist: Any) -> Iterator[Any]:
        """The default is not all of them."""
        for number, choice in enumerate(super().choices(changelist)):
            yield choice if number else {**choice, "display": "hidden"}

    def condition(self, value: str) -> Q:
        """``only`` narrows, ``too`` does not."""
        return Q(discarded_at__isnull=False) if value == "only" else Q()
