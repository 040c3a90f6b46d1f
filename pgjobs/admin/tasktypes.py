"""Tasks: which type of job got slow, started failing, or takes the capacity; and the pause that stops one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from pgjobs.admin import errorrows, figures, marks, navigation, queuerows, taskfacts
from pgjobs.admin.ages import moment, seconds_in_words
from pgjobs.admin.frames import ListPage, RowPage
from pgjobs.admin.joblist import LedToJobAdmin
from pgjobs.admin.limits import LIST_SECONDS, PANEL_SECONDS, limited, panel
from pgjobs.health.errors import error_groups
from pgjobs.health.tasktypes import MOST, RANGES, Span, Sums, TaskDetail, TaskRow, task_detail, task_table
from pgjobs.queue import pauses, rights
from pgjobs.queue.registry import registry

_SHOWN = 500
_IDLE_SHOWN = 100
_ERRORS = 5
_DEFAULT = "-total"
_SECONDS = 10

_Key = Callable[[TaskRow], Any]
_COLUMNS: dict[str, tuple[str, _Key]] = {
    "task": ("Task", lambda row: row.job_type),
    "runs": ("Runs", lambda row: row.now.runs),
    "fail": ("Fail", lambda row: row.now.fail_share),
    "dead": ("Died", lambda row: row.now.dead + row.now.failed),
    "p50": ("p50", lambda row: row.now.run(0.5) or 0),
    "p95": ("p95", lambda row: row.now.run(0.95) or 0),
    "p99": ("p99", lambda row: row.now.run(0.99) or 0),
    "wait": ("Wait p95", lambda row: row.now.wait(0.95) or 0),
    "change": ("Against before", lambda row: row.change.weight),
    "total": ("Time", lambda row: row.now.run_seconds),
    "retries": ("Retries per success", lambda row: row.now.retries_per_success or 0),
}


class TaskTypeAdmin(ListPage, RowPage, LedToJobAdmin):
    """A page of figures in the place of a list of rows; the id of a type is its name."""

    list_template = "pgjobs/admin/tasktypes.html"
    row_template, row_seconds, row_word = "pgjobs/admin/tasktype.html", _SECONDS, "Task"

    def page_at(self, request: HttpRequest, name: str) -> HttpResponse:
        """One type; 404 for a name that nothing is known of, unless it is paused, and can be resumed here."""
        with limited(PANEL_SECONDS):
            if not pauses.heard_of(name, pauses.TYPE):
                return self.missing_page(request, name)
        status = 200 if name.isprintable() else 404
        return self.framed(request, f"Task {name}"[:200], lambda: self._one(request, name), status=status)

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """One row per type that ran in the range."""
        chosen, sort = _range(request), request.GET.get("sort", _DEFAULT)
        sort = sort if sort.removeprefix("-") in _COLUMNS else _DEFAULT
        return {
            "ranges": [(name, name == chosen) for name in RANGES],
            "columns": _heads(chosen, sort),
            "table": panel(lambda: self._table(chosen, sort), seconds=LIST_SECONDS),
        }

    def _table(self, chosen: str, sort: str) -> dict[str, Any]:
        found = task_table(chosen, timeout=f"{LIST_SECONDS * 1000:.0f}ms")
        paused = {each.name for each in pauses.paused(pauses.TYPE)}
        rows = sorted(found.rows, key=_COLUMNS[sort.removeprefix("-")][1], reverse=sort.startswith("-"))
        ran = {row.job_type for row in rows}
        idle = [name for name in registry.names() if name not in ran]
        return {
            "rows": [self._row(row, chosen, row.job_type in paused) for row in rows[:_SHOWN]],
            "more": f"{len(rows) - _SHOWN:,}" if len(rows) > _SHOWN else "",
            "complete": found.complete,
            "most": f"{MOST:,}",
            "idle": [(name, self.address(name, chosen), name in paused) for name in idle[:_IDLE_SHOWN]],
            "idle_more": f"{len(idle) - _IDLE_SHOWN:,}" if len(idle) > _IDLE_SHOWN else "",
            **_told(found.span),
        }

    def _row(self, row: TaskRow, chosen: str, paused: bool) -> dict[str, Any]:
        return {
            "name": row.job_type,
            "url": self.address(row.job_type, chosen),
            "paused": paused,
            "jobs_url": self._jobs(job_type=row.job_type, status="dead"),
            "share": f"{row.share:.0%}",
            "change": row.change.words,
            "worse": row.change.weight >= 2,
            **_cells(row.now),
        }

    def address(self, name: str, chosen: str = "") -> str:
        """The page of one type."""
        url = reverse("admin:pgjobs_tasktype_change", args=[quote(name)], current_app=self.admin_site.name)
        return f"{url}?range={chosen}" if chosen else url

    def _one(self, request: HttpRequest, name: str) -> dict[str, Any]:
        chosen, site = _range(request), self.admin_site
        named = "\x00" not in name
        detail = panel(lambda: self._detail(task_detail(name, chosen), chosen) if named else None)
        held = panel(
            lambda: [each for each in queuerows.pauses_in_force() if each["name"] == name] if named else []
        )
        held_types = [each for each in held.value or () if each["kind"] == pauses.TYPE]
        return {
            "name": name,
            "kind": pauses.TYPE,
            "ranges": [(each, each == chosen) for each in RANGES],
            "detail": detail,
            "pauses": type(held)(held_types, held.problem),
            "is_paused": bool(held_types) or bool(held.problem),
            "errors": panel(lambda: self._errors(name)),
            "settings": taskfacts.settings(name),
            "served": panel(lambda: taskfacts.served(name) if named else []),
            "jobs_url": self._jobs(job_type=name),
            "dead_url": self._jobs(job_type=name, status="dead"),
            "activity_url": navigation.activity(site, request, job_type=name),
            "next": f"{request.path}?range={chosen}",
            "may_pause": request.user.has_perm(rights.right("type", "pause").permission),
            "pause_url": reverse("admin:pgjobs_queue_pause", current_app=site.name),
            "resume_url": reverse("admin:pgjobs_queue_resume", current_app=site.name),
        }

    def _detail(self, found: TaskDetail, chosen: str) -> dict[str, Any]:
        row = found.row
        return {
            "ran": bool(row.now.runs),
            "change": row.change.words,
            "total": seconds_in_words(row.now.run_seconds),
            "charts": [
                *figures.of_task(found.points, chosen),
                figures.histogram(row.now.run_counts, chosen),
            ],
            "queues": [
                {"name": name, "url": queuerows.address(self.admin_site, name), **_cells(sums)}
                for name, sums in found.queues
            ],
            **_cells(row.now),
            **_told(found.span),
        }

    def _errors(self, name: str) -> list[dict[str, Any]]:
        groups = error_groups()
        found = [group for group in groups.groups if group.job_type == name]
        found.sort(key=lambda group: (-group.last_hour, -group.jobs))
        return [errorrows.row(group, groups, self.admin_site) for group in found[:_ERRORS]]

    def _jobs(self, **filters: str) -> str:
        address = reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name)
        return f"{address}?{urlencode(filters)}"


def _range(request: HttpRequest) -> str:
    wanted = request.GET.get("range", "")
    return wanted if wanted in RANGES else "1h"


def _heads(chosen: str, sort: str) -> list[dict[str, str]]:
    """The heads of the columns with the links that sort: numbers fall at first, names rise."""
    key = sort.removeprefix("-")
    heads = []
    for name, (label, _) in _COLUMNS.items():
        first, second = (name, f"-{name}") if name == "task" else (f"-{name}", name)
        order = "descending" if sort.startswith("-") else "ascending"
        query = urlencode({"range": chosen, "sort": second if sort == first else first})
        heads.append({"label": label, "url": f"?{query}", "order": order if name == key else ""})
    return heads


def _cells(sums: Sums) -> dict[str, str]:
    per_success = sums.retries_per_success
    share = f"{sums.fail_share:.1%}" if sums.runs else "-"
    return {
        "runs": f"{sums.runs:,}",
        "fail": marks.state("failed", share) if sums.fail_share >= 0.05 else share,
        "died": f"{sums.dead + sums.failed:,}",
        "p50": seconds_in_words(sums.run(0.5)),
        "p95": seconds_in_words(sums.run(0.95)),
        "p99": seconds_in_words(sums.run(0.99)),
        "wait": seconds_in_words(sums.wait(0.95)),
        "total": seconds_in_words(sums.run_seconds),
        "retries": "-" if per_success is None else f"{per_success:.2g}",
    }


def _told(span: Span) -> dict[str, Any]:
    """From when on the figures are, where that is not what was asked for."""
    return {
        "since": moment(span.since, span.clock),
        "reaches": "" if span.is_whole else moment(span.reaches, span.clock),
        "compares": span.compares,
    }
