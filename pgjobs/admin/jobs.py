"""Jobs: the list in which one is found, and that of the dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from pgjobs.admin import bulkplan, marks, search, window
from pgjobs.admin.filters import (
    PENDING,
    DiscardedFilter,
    EndedStatusFilter,
    JobTypeFilter,
    QueueFilter,
    StatusFilter,
)
from pgjobs.admin.job import JobPage
from pgjobs.admin.joblist import JobListAdmin, LedToJobAdmin
from pgjobs.admin.limits import panel
from pgjobs.admin.pages import FRAGMENT
from pgjobs.admin.readonly import BoundedChangeList
from pgjobs.conf import get_settings
from pgjobs.queue import stats
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.states import JobStatus
from pgjobs.queue.stats import COUNT_LIMIT

_PENDING = {"ready", "scheduled", "retry", JobStatus.PENDING.value}
_ENDED = {JobStatus.DEAD.value, JobStatus.FAILED.value, JobStatus.CANCELLED.value}
_ENDED_BADLY = (JobStatus.DEAD.value, JobStatus.FAILED.value)
_COUNTED: dict[str, Callable[..., int]] = {
    "ready": lambda due, later, oldest: due,
    "scheduled": lambda due, later, oldest: later,
    JobStatus.PENDING.value: lambda due, later, oldest: due + later,
}
_IN_INDEX = {"queue", "job_type"}
"""Filters that the indexes of what has ended answer without a look at the rows."""
_READ = 10_000
"""Rows of what has ended that are read one by one, wherever they lie, to see whether they match."""
_TABS = (
    ("Ready", "ready"),
    ("Running", "running"),
    ("Scheduled", "scheduled"),
    ("Dead", "dead"),
    ("Failed", "failed"),
    ("Cancelled", "cancelled"),
    ("Done", "succeeded"),
    ("All", ""),
)


class JobAdmin(JobPage, JobListAdmin):
    """All jobs, the newest first."""

    actions = ("retry_selected", "cancel_selected", "run_now_selected", "discard_selected")
    list_display = ("id", "job_type", "queue", "state", "when", "attempts", "error", "by")
    list_filter = (StatusFilter, QueueFilter, JobTypeFilter, DiscardedFilter)
    search_fields = ("id",)
    search_help_text = search.HELP

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; or the page of an archived job, when its id is searched for."""
        context = dict(extra_context or {})
        if request.method == "GET" and self.has_view_permission(request):
            term = request.GET.get("q", "").strip()
            # An id is in one table only.
            archived: HttpResponse | None = panel(lambda: self.archived_page(term)).value if term else None
            if archived is not None:
                return archived
            context["tabs"] = _tabs(request)
            context["bulk_url"] = self.bulk_url(request)
        return super().changelist_view(request, context)

    def get_paginator(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """What waits is counted for the tabs already, from the index of the claim; a list would fetch each row."""
        paginator: Any = super().get_paginator(request, *args, **kwargs)
        asked = {
            name: value for name, value in request.GET.items() if name not in ("p", "o", "all", FRAGMENT)
        }
        state, queue = asked.pop("status", ""), asked.pop("queue", None)
        waiting = getattr(request, "pgjobs_waiting", None)
        if waiting is not None and not asked and state in _COUNTED:
            parts = [_COUNTED[state](*each) for name, each in waiting.items() if queue in (None, name)]
            paginator.known = sum(parts)
        return paginator

    def bulk_url(self, request: HttpRequest) -> str:
        """Where everything that matches is acted upon; empty for those who may not, or when nothing fits."""
        given = {name: request.GET[name] for name in ("status", "queue", "job_type") if request.GET.get(name)}
        if request.GET.get("q") or not bulkplan.offered(request, given.get("status", "")):
            return ""
        return bulkplan.address(self.admin_site, **given)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact matches only; a substring search reads every row."""
        asked = search.parse(search_term.strip())
        request.pgjobs_search = asked  # type: ignore[attr-defined]
        if asked.problems:
            return queryset.none(), False
        if asked.word is not None:
            request.pgjobs_window = window.window(Job)  # type: ignore[attr-defined]
            asked.only(_named(asked.word, request.pgjobs_window.floor))  # type: ignore[attr-defined]
            return queryset, False
        return queryset.filter(asked.condition), False

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """What no index serves is looked for in a window of ids, which the page names."""
        assert isinstance(changelist, BoundedChangeList)
        request: Any = changelist.request
        asked: search.Search = getattr(request, "pgjobs_search", None) or search.Search()
        rows = super().narrow(changelist, rows)
        changelist.problems = asked.problems
        if asked.problems:
            return rows.none()
        if asked.word is not None and not asked.ids:
            return windowed(changelist, rows.filter(job_type=asked.word))
        if asked.ids is not None:
            return rows.filter(pk__in=asked.ids)
        if asked.indexed:
            return rows
        chosen = _chosen(changelist)
        if not chosen and not changelist.query and window.PARAMETER not in request.GET:
            return rows
        state = chosen.pop("status", None) or asked.state
        return bounded(changelist, rows, state, chosen)

    @admin.display(description="worker")
    def by(self, job: Any) -> str:
        """Who holds it, or who ended it."""
        return job.lease_owner or job.completed_by or "-"


class DeadJobAdmin(LedToJobAdmin):
    """What ended without success, the latest first: dead jobs, or the failed, as the tab says."""

    actions = ("retry_selected", "discard_selected", "restore_selected")
    list_display = ("id", "job_type", "queue", "state", "when", "attempts", "error")
    list_filter = (EndedStatusFilter, QueueFilter, JobTypeFilter, DiscardedFilter)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list with a tab for each status."""
        here = request.GET.get("status", JobStatus.DEAD.value)
        kept = {name: request.GET[name] for name in ("queue", "job_type", "discarded") if name in request.GET}
        known: dict[str, int] = panel(stats.by_status).value or {}
        request.pgjobs_counted = known  # type: ignore[attr-defined]
        tabs = [
            {
                "label": status.capitalize(),
                "url": f"?{urlencode({'status': status, **kept})}",
                "count": marks.count(known[status]) if status in known else "",
                "current": status == here,
            }
            for status in _ENDED_BADLY
        ]
        given: dict[str, str] = {name: kept[name] for name in ("queue", "job_type") if name in kept}
        given["status"] = here
        bulk = bulkplan.address(self.admin_site, **given) if bulkplan.offered(request, here) else ""
        return super().changelist_view(request, {"tabs": tabs, "bulk_url": bulk, **(extra_context or {})})

    def narrow(self, changelist: ChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
        """One status at a time, read from the end of its index."""
        assert isinstance(changelist, BoundedChangeList)
        chosen = _chosen(changelist)
        state = chosen.pop("status", JobStatus.DEAD.value)
        rows = super().narrow(changelist, rows).filter(status=state)
        return bounded(changelist, rows, state, chosen)


def bounded(
    changelist: BoundedChangeList, rows: QuerySet[Any], state: str | None, chosen: dict[str, Any]
) -> QuerySet[Any]:
    """The rows of a state with other filters: as far as an index goes, else a window of ids."""
    discarded = chosen.pop("discarded", None) if state in _ENDED else None
    if state in _ENDED and discarded is None:
        rows = rows.filter(discarded_at__isnull=True)
    # The indexes of what has ended hold what is discarded, or what is not: both together are in none.
    if window.PARAMETER in changelist.request.GET or not _has_index(state) or discarded == "too":
        return windowed(changelist, rows)
    if state in _PENDING and set(chosen) <= {"queue"} and not changelist.query:
        return rows
    if chosen or changelist.query:
        scattered = state in _ENDED and (changelist.query or not set(chosen) <= _IN_INDEX)
        most = min(_READ, window.WINDOW) if scattered else window.WINDOW
        if _more(changelist.request, str(state), most, discarded=discarded is not None):
            return windowed(changelist, rows)
    return rows.order_by("-completed_at", "-pk") if state in _ENDED else rows


def windowed(changelist: BoundedChangeList, rows: QuerySet[Any]) -> QuerySet[Any]:
    """The rows in a window of ids, and a sentence that says so."""
    request: Any = changelist.request
    stretch = getattr(request, "pgjobs_window", None)
    if stretch is None or window.PARAMETER in request.GET:
        stretch = window.window(Job, request.GET.get(window.PARAMETER, ""))
    if not stretch.is_partial:
        return rows
    changelist.notice = stretch.sentence("jobs", dict(request.GET.lists()))
    return rows.filter(**stretch.condition())


def _chosen(changelist: ChangeList) -> dict[str, Any]:
    specs: list[Any] = changelist.filter_specs
    return {spec.parameter_name: spec.value() for spec in specs if spec.value() is not None}


def _ended(status: str, *, discarded: bool) -> QuerySet[Any]:
    """Ids of one status in the order of its index."""
    found = Job._base_manager.using(get_settings().database).filter(status=status)
    return found.filter(discarded_at__isnull=not discarded).order_by("-completed_at", "-pk").values("pk")


def _has_index(state: str | None) -> bool:
    return state in _PENDING or state in _ENDED or state == JobStatus.RUNNING


def _more(request: Any, state: str, most: int, *, discarded: bool) -> bool:
    """Whether more jobs than that are in the state: as the tabs have counted it, else read from its index alone."""
    if state in _ENDED:
        counted = getattr(request, "pgjobs_counted", {}).get(state)
        if counted is not None and not discarded and min(counted, most) <= COUNT_LIMIT:
            return bool(counted > most)
        return _ended(state, discarded=discarded)[most : most + 1].exists()
    if state == JobStatus.RUNNING:
        return False
    waiting = Job._base_manager.using(get_settings().database).filter(PENDING, crash_count=0)
    ordered = waiting.order_by("queue", "priority", "available_at", "pk").values("pk")
    return bool(ordered[most : most + 1].exists())


def _named(word: str, floor: int) -> set[int]:
    """Jobs with that id or idempotency key; keys of rows are looked for among the newest ids."""
    using = get_settings().database
    newest = Job._base_manager.using(using).filter(pk__gt=floor, idempotency_key=word)
    ids = set(newest.order_by("-pk").values_list("pk", flat=True)[:100])
    ids |= set(JobResult._base_manager.using(using).filter(pk=word).values_list("job_id", flat=True))
    if pk := window.as_id(word):
        ids.add(pk)
    return ids


def _tabs(request: HttpRequest) -> list[dict[str, Any]]:
    """The states with their counts, each a link that keeps the other filters."""

    def read() -> dict[str, str]:
        found, (waiting, is_cut) = stats.by_status(), stats.waiting_as_far()
        request.pgjobs_counted = found  # type: ignore[attr-defined]
        request.pgjobs_waiting = None if is_cut else waiting  # type: ignore[attr-defined]
        told = {name: marks.count(number) for name, number in found.items() if name != "all"}
        for name, place in (("ready", 0), ("scheduled", 1)):
            number = sum(each[place] or 0 for each in waiting.values())  # type: ignore[misc]
            told[name] = marks.count(number) if number > COUNT_LIMIT or not is_cut else f"{number:,}+"
        return told | {"": f"~{found['all']:,}"} if found["all"] > COUNT_LIMIT else told

    known: dict[str, str] = panel(read).value or {}
    kept = {name: request.GET[name] for name in ("queue", "job_type") if name in request.GET}
    here = request.GET.get("status", "")
    return [
        {
            "label": label,
            "url": f"?{urlencode({'status': state, **kept} if state else kept)}",
            "count": known.get(state, ""),
            "current": state == here,
        }
        for label, state in _TABS
    ]


def page_of_jobs(site: Any, **params: str) -> str:
    """The address of the list, filtered."""
    address = reverse("admin:pgjobs_job_changelist", current_app=site.name)
    return f"{address}?{urlencode(params)}" if params else address
