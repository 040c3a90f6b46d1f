"""What a person does to causes of failures: acknowledge, mute, open again, or go on to all jobs of one."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote, unquote
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from pgjobs.admin import bulkplan
from pgjobs.admin.guards import guarded
from pgjobs.admin.limits import PANEL_SECONDS, limited
from pgjobs.admin.verbs import Unseen, actor_of, attempt, back, denied, lacking, some, valid
from pgjobs.conf import get_settings
from pgjobs.queue import acknowledging, rights
from pgjobs.queue.acknowledging import AT_ONCE, ErrorOutcome
from pgjobs.queue.models import Job

KIND = "error"
VERBS = ("acknowledge", "mute", "unacknowledge")
PLANS = {"canary": ("retry", {"canary": "5"}), "retry": ("retry", {}), "discard": ("discard", {})}
"""What may be done to all jobs of a cause: the verb of the bulk operation, and what its form is filled with."""


class KnownForm(forms.Form):
    """What is known, and for how long it is not to be told."""

    reason = forms.CharField(max_length=500, required=False)
    link = forms.CharField(max_length=500, required=False)
    hours = forms.FloatField(min_value=0.01, max_value=366 * 24, required=False)


def urls(model_admin: Any) -> list[Any]:
    """One address a verb, and one that leads on to bulk operations."""
    wrap = guarded(model_admin)
    verbs = [
        path(f"{name}/", wrap(partial(_verb_view, model_admin, name=name)), name=f"pgjobs_errorgroup_{name}")
        for name in VERBS
    ]
    return [*verbs, path("plan/", wrap(partial(_plan_view, model_admin)), name="pgjobs_errorgroup_plan")]


def context(request: HttpRequest, site: Any) -> dict[str, Any]:
    """What the forms of the verbs need; without addresses for those who may not."""
    found: dict[str, Any] = {"may_know": rights.may(request.user, KIND, "acknowledge")}
    for name in (*VERBS, "plan"):
        found[f"{name}_url"] = reverse(f"admin:pgjobs_errorgroup_{name}", current_app=site.name)
    return found


def planned(request: HttpRequest, site: Any, fingerprint: str, status: str) -> dict[str, str]:
    """The addresses of the bulk operations on all jobs of a cause in a status, for those who may."""
    offered = bulkplan.offered(request, status) if fingerprint else []
    return {
        name: bulkplan.address(site, status=status, fingerprint=fingerprint, verb=verb, **filled)
        for name, (verb, filled) in PLANS.items()
        if verb in offered
    }


def _verb_view(model_admin: Any, request: HttpRequest, name: str) -> HttpResponse:
    """Acknowledge, mute or open again what was named. POST only."""
    home = reverse("admin:pgjobs_errorgroup_changelist", current_app=model_admin.admin_site.name)
    names = _named(request)
    if refused := _refused(model_admin, request, name, names):
        return refused
    form = KnownForm(request.POST)
    if not valid(request, form):
        return back(request, home)
    if not names:
        messages.error(request, "Nothing was done: tick what it is to be done to.")
        return back(request, home)
    given = form.cleaned_data
    if name == "mute" and not given["hours"]:
        messages.error(request, "Nothing was done: say for how many hours.")
        return back(request, home)
    outcomes = attempt(request, lambda: _act(request, name, names, given))
    if outcomes is not None:
        _tell(request, outcomes)
    return back(request, home)


def _act(request: HttpRequest, name: str, names: list[str], given: dict[str, Any]) -> list[ErrorOutcome]:
    options: dict[str, Any] = {
        "actor": actor_of(request),
        "reason": given["reason"],
        "expected": _seen(request, names),
    }
    if name == "unacknowledge":
        return acknowledging.unacknowledge(names, **options)
    if name == "mute":
        return acknowledging.mute(names, until=timedelta(hours=given["hours"]), link=given["link"], **options)
    return acknowledging.acknowledge(names, link=given["link"], **options)


def _plan_view(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """From the ticked cause to the page that plans a bulk operation on its jobs. Changes nothing itself."""
    home = reverse("admin:pgjobs_errorgroup_changelist", current_app=model_admin.admin_site.name)
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    names, plan = _named(request), PLANS.get(request.POST.get("plan", ""))
    needed = bulkplan.needed(plan[0]) if plan else ()
    if permission := lacking(model_admin, request, *needed):
        return denied(request, "start", permission, kind="bulk", ids=[])
    if len(names) != 1 or plan is None:
        messages.error(request, "Nothing was done: tick the one error whose jobs are meant.")
        return back(request, home)
    jobs = Job._base_manager.using(get_settings().database)
    jobs = jobs.filter(status__in=["dead", "failed"], discarded_at=None, fingerprint=names[0])
    with limited(PANEL_SECONDS):
        status = jobs.order_by("-pk").values_list("status", flat=True).first() or "dead"
    verb, filled = plan
    address = bulkplan.address(
        model_admin.admin_site, status=status, fingerprint=names[0], verb=verb, **filled
    )
    return HttpResponseRedirect(address)


def _refused(model_admin: Any, request: HttpRequest, name: str, names: list[str]) -> HttpResponse | None:
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    permission = lacking(model_admin, request, rights.right(KIND, name).permission)
    if not permission:
        return None
    return denied(request, name, permission, kind=KIND, ids=names)


def _named(request: HttpRequest) -> list[str]:
    """The fingerprints of the form, as far as a job can carry them."""
    given = (unquote(text) for text in request.POST.getlist("fingerprint")[: AT_ONCE + 1])
    return sorted({name for name in given if 0 < len(name) <= 40 and "\x00" not in name})


def _seen(request: HttpRequest, names: list[str]) -> dict[str, str]:
    """How each cause stood when the person looked. Raises :class:`Unseen` where the form does not say."""
    pairs = (text.partition(":") for text in request.POST.getlist("seen"))
    found = {unquote(name): seen for seen, colon, name in pairs if colon}
    if missing := [quote(name) for name in names if name not in found]:
        raise Unseen(f"error {some(missing)}", "seen")
    return found


def _tell(request: HttpRequest, outcomes: list[ErrorOutcome]) -> None:
    """One sentence for all of which the same is to be said."""
    for (done, message), count in Counter((each.done, each.message) for each in outcomes).items():
        names = [quote(each.fingerprint)[:12] for each in outcomes if each.message == message]
        say = messages.success if done else messages.warning
        nothing = "" if done else "Nothing was done: "
        say(request, f"{'Error' if count == 1 else 'Errors'} {some(names)}: {nothing}{message}.")
