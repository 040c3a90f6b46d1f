"""The first page: is anything wrong, since when, and what to look at first."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from pgjobs.admin import audited, cards, errorrows, figures, marks, navigation, queuerows
from pgjobs.admin.ages import moment
from pgjobs.admin.frames import ListPage
from pgjobs.admin.joblist import LedToJobAdmin
from pgjobs.admin.limits import Panel, panel
from pgjobs.conf import get_settings
from pgjobs.health.overview import Overview as Seen
from pgjobs.health.overview import overview
from pgjobs.health.verdict import Problem, Verdict
from pgjobs.queue import pauses, rights
from pgjobs.queue.models import Job
from pgjobs.queue.stats import COUNT_LIMIT

_PROBLEMS = 10
_QUEUES = 12
_ACTIONS = 5
_PAUSABLE = {"queue": pauses.QUEUE, "job_type": pauses.TYPE}
_MARKS = {"ok": "✓", "problem": "●", "unknown": "?"}


class OverviewAdmin(ListPage, LedToJobAdmin):
    """A page of figures in the place of a list of rows."""

    list_template, list_seconds = "pgjobs/admin/overview.html", 5

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """The verdict, the problems, the figures."""
        site, may = self.admin_site, request.user.has_perm
        name = figures.chosen(request.GET.get("range", "60m"))
        seen = overview()
        verdict = seen.verdict
        _keep_badges(site, seen)
        may_pause = rights.may(request.user, "queue", "resume")
        held = {(each.kind, each.name): pauses.mark(each) for each in seen.pauses}
        named = [row.name for row in (seen.queues or [])[:_QUEUES]]
        drawn = panel(lambda: figures.overall(name, named, seen.workers or ()))
        return {
            "mark": _MARKS[verdict.state],
            "verdict": verdict,
            "checked": moment(verdict.checked_at, verdict.checked_at) if verdict.checked_at else "",
            "problems": [_problem(each, verdict, site, held) for each in verdict.problems[:_PROBLEMS]],
            "may_pause": may_pause,
            "resume_url": reverse("admin:pgjobs_queue_resume", current_app=site.name),
            "more_problems": max(len(verdict.problems) - _PROBLEMS, 0),
            "unknown": sorted(verdict.unknown.items()),
            "cards": cards.of(
                seen,
                site,
                may_see_workers=may("pgjobs.view_worker"),
                may_see_approvals=may("pgjobs.view_wait"),
            ),
            "queues": _queues(seen, site, drawn.value[1] if drawn.value else {}),
            "ranges": [(each, each == name) for each in figures.RANGES],
            "charts": Panel(drawn.value[0] if drawn.value else None, drawn.problem),
            "errors": panel(lambda: errorrows.lately(site, seen.known_causes)),
            "actions": panel(lambda: audited.latest(_ACTIONS)) if may("pgjobs.view_operatoraction") else None,
            "empty": panel(lambda: _nothing_yet(seen)).value is True,
        }


def _queues(seen: Seen, site: Any, sparks: dict[str, SafeString]) -> Panel:
    if seen.queues is None:
        return Panel(problem=f"Not available: {seen.missing.get('queues', 'could not be read')}")
    return Panel(queuerows.of(seen.queues[:_QUEUES], site, sparks))


def _problem(
    problem: Problem, verdict: Verdict, site: Any, held: dict[tuple[str, str], str]
) -> dict[str, Any]:
    paused = _PAUSABLE.get(problem.kind, "") if problem.code == "PAUSED" else ""
    clock = verdict.checked_at
    since = ""
    if problem.since and clock:
        since = moment(problem.since, clock)
    return {
        "code": problem.code,
        "severity": problem.severity.value,
        "why": problem.why,
        "cure": problem.cure,
        "since": since,
        "url": target(problem, site),
        "paused": paused,
        "expected": held.get((paused, problem.target), ""),
        "name": problem.target,
    }


def target(problem: Problem, site: Any) -> str:
    """The page on which the problem is looked at."""

    def address(name: str, *args: Any, **params: str) -> str:
        found = reverse(f"admin:pgjobs_{name}", args=args, current_app=site.name)
        return f"{found}?{urlencode(params)}" if params else found

    kind, name = problem.kind, problem.target
    if problem.code == "LEASE_LOST":
        return address("runningjob_changelist", lost="1")
    if problem.code == "STALLED":
        return address("runningjob_changelist", queue=problem.queue)
    if problem.code == "APPROVAL_OVERDUE":
        return address("wait_changelist")
    if problem.code == "PAUSED_EXECUTIONS":
        return address("execution_changelist", status="paused")
    if kind == "workflow":
        return address("execution_changelist", status="enqueued", workflow_name=name)
    if problem.code == "UNKNOWN_TYPES":
        return address("job_changelist", status="pending", queue=problem.queue, job_type=name)
    if kind == "fingerprint" and name:
        return errorrows.address(site, name)
    if problem.code in ("DEAD_TOTAL", "DEAD_NEW"):
        return address("errorgroup_changelist")
    if kind in ("job", "execution") and name:
        return address(f"{kind}_change", name)
    if kind == "bulk" and name and "bulkoperation" in _names(site):
        return address("bulkoperation_change", name)
    if kind == "worker" or problem.code in ("WEDGED", "WORKER_SILENT", "VERSION_SKEW"):
        return address("worker_changelist")
    if problem.code in ("DB_HORIZON", "STATS_STALE"):
        return address("system_changelist")
    if problem.queue:
        return queuerows.address(site, problem.queue)
    return ""


def _names(site: Any) -> set[str]:
    return {str(model._meta.model_name) for model in site._registry}


def _keep_badges(site: Any, seen: Seen) -> None:
    """The strip shows what was read here, and costs no statement of its own."""
    if seen.totals is not None:
        approvals = marks.count(seen.totals.approvals, COUNT_LIMIT)
        navigation.keep_badges(site, deadjob=cards.dead(seen.totals), wait=approvals)


def _nothing_yet(seen: Seen) -> bool:
    """Whether there is no job at all."""
    return not seen.queues and not Job._base_manager.using(get_settings().database).exists()
