"""Act on all that match a filter: a page that says how many, which, and how fast, before anything is done."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from pgjobs.admin import navigation
from pgjobs.admin.guards import guarded
from pgjobs.admin.limits import ACT_SECONDS, LIST_SECONDS, Undone, acting, panel, why
from pgjobs.admin.pages import changed, respond
from pgjobs.admin.verbs import actor_of, denied, lacking, problems, stated
from pgjobs.bulk import control, runner
from pgjobs.bulk.filters import KEYS
from pgjobs.bulk.filters import VERBS as BULK_VERBS
from pgjobs.exceptions import PgJobsError
from pgjobs.health.phrases import many
from pgjobs.queue import rights, stats
from pgjobs.queue.control import VerbOutcome

PERMISSION = rights.right("bulk", "start").permission
IN_REQUEST_SECONDS = 2.0
"""A small operation is over when the page comes back."""
_SPREAD_ABOVE = 1_000
_SPREAD_SECONDS = 300


class PlanForm(forms.Form):
    """How it is to be done, and why."""

    reason = forms.CharField(max_length=500)
    pace = forms.FloatField(min_value=0.001, max_value=1e6, required=False)
    canary = forms.IntegerField(min_value=1, max_value=control.MOST_WATCHED, required=False)
    stop_percent = forms.IntegerField(min_value=0, max_value=99, required=False)
    more_attempts = forms.IntegerField(min_value=1, max_value=10_000, required=False)
    upper_id = forms.IntegerField(min_value=0)


def urls(model_admin: Any) -> list[Any]:
    """The page, beside the addresses of jobs."""
    view = guarded(model_admin)(partial(plan_view, model_admin))
    return [path("bulk/", view, name="pgjobs_job_bulk")]


def address(site: Any, **params: str) -> str:
    """The page for a filter."""
    return f"{reverse('admin:pgjobs_job_bulk', current_app=site.name)}?{urlencode(params)}"


def needed(verb: str) -> tuple[str, str]:
    """The permissions of an operation: bulk needs that of the verb besides its own."""
    return PERMISSION, rights.right("job", verb).permission


def offered(request: HttpRequest, status: str) -> list[str]:
    """The verbs that a person may do to all jobs of a status."""
    user: Any = request.user
    return [
        name
        for name, verb in BULK_VERBS.items()
        if status in verb.sources and all(map(user.has_perm, needed(name)))
    ]


def plan_view(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """GET counts and shows; POST plans, starts, and carries the first batch."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    given = {name: request.GET[name] for name in KEYS if request.GET.get(name)}
    verb = request.GET.get("verb", "") or next(iter(offered(request, given.get("status", ""))), "retry")
    if verb not in BULK_VERBS:
        verb = "retry"
    if permission := lacking(model_admin, request, *needed(verb)):
        if request.method != "POST":
            raise PermissionDenied
        return denied(request, "start", permission, kind="bulk", ids=[])
    if request.method != "POST":
        return _page(model_admin, request, verb, given, [])
    stated(request, "upper_id", "the jobs that match")
    form = PlanForm(request.POST)
    if not form.is_valid():
        return _page(model_admin, request, verb, given, problems(form))
    try:
        operation, outcome = _start(request, verb, given, form.cleaned_data)
    except (PgJobsError, Undone) as error:
        return _page(model_admin, request, verb, given, [str(error)])
    changed()
    messages.success(request, f"Bulk operation {operation.pk} is {outcome.message}.")
    site = model_admin.admin_site.name
    return HttpResponseRedirect(
        reverse("admin:pgjobs_bulkoperation_change", args=[operation.pk], current_app=site)
    )


def _start(
    request: HttpRequest, verb: str, given: dict[str, str], chosen: dict[str, Any]
) -> tuple[Any, VerbOutcome]:
    actor = actor_of(request)
    more = chosen["more_attempts"] if "more_attempts" in BULK_VERBS[verb].options else None
    percent = chosen["stop_percent"]
    with acting():
        operation = control.plan(
            verb,
            given,
            actor=actor,
            reason=chosen["reason"],
            upper_id=chosen["upper_id"],
            pace=chosen["pace"],
            canary=chosen["canary"],
            stop_share=None if percent is None else percent / 100,
            options={"more_attempts": more},
        )
        outcome = control.start(operation.pk, actor=actor, reason=chosen["reason"])
    if outcome.done:
        _carry(request, operation.pk)
    return operation, outcome


def _carry(request: HttpRequest, pk: int) -> None:
    """The first of it, here and now. Whatever comes of that, the operation is begun and a worker goes on with it."""
    by = f"a request of {actor_of(request)}"
    try:
        runner.carry(pk, by=by, seconds=IN_REQUEST_SECONDS, statement_seconds=ACT_SECONDS)
    except (DatabaseError, InterfaceError) as error:
        messages.warning(request, f"A batch of it was left to a worker: {why(error, ACT_SECONDS)}.")


def _page(
    model_admin: Any, request: HttpRequest, verb: str, given: dict[str, str], wrong: list[str]
) -> HttpResponse:
    return respond(
        model_admin,
        request,
        "pgjobs/admin/bulkplan.html",
        lambda: {"problems": wrong, **_content(model_admin, request, verb, given)},
        title=f"{verb.capitalize()} all that match",
        crumbs=navigation.crumbs(model_admin.admin_site, "job"),
        shared=False,
    )


def _content(model_admin: Any, request: HttpRequest, verb: str, given: dict[str, str]) -> dict[str, Any]:
    verbs = offered(request, given.get("status", ""))
    found: dict[str, Any] = {
        "verb": verb,
        "verbs": [(each, f"?{urlencode({**given, 'verb': each})}", each == verb) for each in verbs],
        "retries": verb == "retry",
        "workers": panel(lambda: stats.live_workers().exists()).value is not False,  # unknown is no alarm
        "given": {name: request.POST.get(name, request.GET.get(name, "")) for name in PlanForm.base_fields},
        "back_url": _back(model_admin.admin_site, given),
    }
    try:
        preview = panel(lambda: control.preview(given, verb), seconds=LIST_SECONDS)
    except PgJobsError as error:
        return found | {"why_not": str(error)}
    if preview.problem:
        return found | {"why_not": preview.problem}
    seen = preview.value
    return found | {
        "seen": seen,
        "count": many(seen.count + seen.more, "job", seen.count),
        "groups": [(queue, job_type, f"{jobs:,}") for queue, job_type, jobs in seen.groups],
        "sample": [(str(pk), model_admin.url_of(pk)) for pk in seen.sample],
        "upper_id": request.POST.get("upper_id") or str(seen.upper_id),
        "pace": _pace(seen.count),
    }


def _pace(count: int) -> str:
    """Jobs a second that spread a large operation over some minutes; small ones go at once."""
    return str(max(round(count / _SPREAD_SECONDS), 1)) if count > _SPREAD_ABOVE else ""


def _back(site: Any, given: dict[str, str]) -> str:
    jobs = reverse("admin:pgjobs_job_changelist", current_app=site.name)
    kept = {name: value for name, value in given.items() if name in ("status", "queue", "job_type")}
    return f"{jobs}?{urlencode(kept)}"
