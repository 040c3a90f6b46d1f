"""Fork an execution from one of its calls, and send it a signal: each a page that says what will happen first."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path

from pgjobs.admin import flowverbs, timeline
from pgjobs.admin.guards import guarded
from pgjobs.admin.limits import Undone, acting, panel
from pgjobs.admin.pages import changed, respond
from pgjobs.admin.verbs import actor_of, denied, expected, lacking, log, problems, seen, valid
from pgjobs.conf import get_settings
from pgjobs.exceptions import PgJobsError
from pgjobs.queue import rights
from pgjobs.workflows import verbs
from pgjobs.workflows.models import Execution
from pgjobs.workflows.states import TERMINAL

FORK, SIGNAL = (rights.right(flowverbs.KIND, name).permission for name in ("fork", "signal"))


class ForkForm(forms.Form):
    """From where, and why."""

    from_ordinal = forms.IntegerField(min_value=0, max_value=10**9)
    reason = forms.CharField(max_length=200)
    cancel_source = forms.BooleanField(required=False)


class SignalForm(forms.Form):
    """What to send."""

    name = forms.CharField(max_length=200)
    payload = forms.CharField(max_length=100_000, required=False)


def urls(model_admin: Any) -> list[Any]:
    """The two addresses."""
    wrap = guarded(model_admin)
    return [
        path("<int:object_id>/fork/", wrap(partial(fork_view, model_admin)), name="pgjobs_execution_fork"),
        path(
            "<int:object_id>/signal/", wrap(partial(signal_view, model_admin)), name="pgjobs_execution_signal"
        ),
    ]


def links(model_admin: Any, request: HttpRequest, execution: Any) -> dict[str, str]:
    """Where both are asked for; empty for those who may not."""
    user: Any = request.user
    may = {"fork": user.has_perm(FORK), "signal": user.has_perm(SIGNAL) and execution.status not in TERMINAL}
    return {
        name: flowverbs.address(model_admin, name, execution.pk) if allowed else ""
        for name, allowed in may.items()
    }


def _refused(
    model_admin: Any, request: HttpRequest, object_id: int, verb: str, permission: str
) -> HttpResponse | None:
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    missing = lacking(model_admin, request, permission)
    if not missing:
        return None
    if request.method != "POST":
        raise PermissionDenied
    return denied(request, verb, missing, kind=flowverbs.KIND, ids=[object_id])


def fork_view(model_admin: Any, request: HttpRequest, object_id: int) -> HttpResponse:
    """GET shows what is kept and what runs again; POST forks."""
    if refused := _refused(model_admin, request, object_id, "fork", FORK):
        return refused
    execution = flowverbs.find(model_admin, request, object_id)
    if execution is None:
        missing: HttpResponse = model_admin.missing_page(request, str(object_id))
        return missing
    if request.method != "POST":
        return _fork_page(model_admin, request, execution)
    form = ForkForm(request.POST)
    if not valid(request, form):
        return HttpResponseRedirect(flowverbs.address(model_admin, "fork", object_id))
    if form.cleaned_data["cancel_source"] and not flowverbs.may(model_admin, request, "cancel"):
        # Half of what was asked for would leave two at work.
        return denied(
            request, "cancel", flowverbs.VERBS["cancel"].permission, kind=flowverbs.KIND, ids=[object_id]
        )
    return _fork(model_admin, request, execution, form.cleaned_data)


def _fork(model_admin: Any, request: HttpRequest, execution: Any, given: dict[str, Any]) -> HttpResponse:
    using, actor = get_settings().database, actor_of(request)
    with acting():
        (outcome,) = verbs.fork(
            [execution.pk],
            from_step=given["from_ordinal"],
            actor=actor,
            reason=given["reason"],
            cancel_source=given["cancel_source"],
            expected=seen(request, "execution", [execution.pk]),
        )
        if outcome.done:
            log(request, Execution, [execution.pk], outcome.message, given["reason"], using)
    changed()
    if not outcome.done or outcome.made is None:
        messages.warning(request, f"Nothing was done: {outcome.message}.")
        return HttpResponseRedirect(model_admin.url_of(execution.pk))
    messages.success(request, f"Execution {execution.pk} was {outcome.message}.")
    return HttpResponseRedirect(model_admin.url_of(outcome.made))


def _fork_page(model_admin: Any, request: HttpRequest, execution: Any) -> HttpResponse:
    wanted = request.GET.get("from", "0")
    place = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 0

    def build() -> dict[str, Any]:
        calls = panel(lambda: timeline.of(execution, model_admin.admin_site)["rows"])
        rows = calls.value or []
        return {
            "execution_id": str(execution.pk),
            "place": str(place),
            "problem": calls.problem,
            "kept": [row for row in rows if int(row["call"]) < place],
            "again": [row for row in rows if int(row["call"]) >= place],
            "expected": expected(execution),
            "url": flowverbs.address(model_admin, "fork", execution.pk),
            "back_url": model_admin.url_of(execution.pk),
            "may_cancel": execution.status not in TERMINAL and flowverbs.may(model_admin, request, "cancel"),
        }

    title = f"Fork execution {execution.pk} from call {place}"
    return respond(model_admin, request, "pgjobs/admin/fork.html", build, title=title, shared=False)


def signal_view(model_admin: Any, request: HttpRequest, object_id: int) -> HttpResponse:
    """GET asks for a name and a payload; POST sends."""
    if refused := _refused(model_admin, request, object_id, "signal", SIGNAL):
        return refused
    execution = flowverbs.find(model_admin, request, object_id)
    if execution is None:
        missing: HttpResponse = model_admin.missing_page(request, str(object_id))
        return missing
    form = SignalForm(request.POST if request.method == "POST" else None)
    problem = ""
    if request.method == "POST":
        problem = _send(request, execution, form)
        if not problem:
            return HttpResponseRedirect(model_admin.url_of(execution.pk))
    context = {
        "execution_id": str(execution.pk),
        "problem": problem,
        "name": request.POST.get("name", request.GET.get("name", "")),
        "payload": request.POST.get("payload", ""),
        "expected": expected(execution),
        "url": flowverbs.address(model_admin, "signal", execution.pk),
        "back_url": model_admin.url_of(execution.pk),
    }
    title = f"Send a signal to execution {execution.pk}"
    return respond(
        model_admin, request, "pgjobs/admin/signal.html", lambda: context, title=title, shared=False
    )


def _send(request: HttpRequest, execution: Any, form: SignalForm) -> str:
    """Send what the form says; why not, when it cannot be sent."""
    if not form.is_valid():
        return "; ".join(problems(form))
    text, saw = form.cleaned_data["payload"].strip(), seen(request, "execution", [execution.pk])
    try:
        payload = json.loads(text) if text else None
    except ValueError as error:
        return f"The payload is no JSON: {error}."
    try:
        with acting():
            (outcome,) = verbs.signal(
                [execution.pk],
                form.cleaned_data["name"],
                payload,
                actor=actor_of(request),
                expected=saw,
            )
    except (PgJobsError, Undone) as error:
        return str(error)
    changed()
    if not outcome.done:
        return outcome.message
    messages.success(request, f"Execution {execution.pk}: {outcome.message}.")
    return ""
