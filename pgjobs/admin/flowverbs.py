"""The verbs on executions: buttons with their effect, a page that asks first, fork, signal, and the POST that acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import path, reverse

from pgjobs.admin.guards import guarded
from pgjobs.admin.pages import respond
from pgjobs.admin.verbs import (
    Governed,
    NeededReasonForm,
    ReasonForm,
    back,
    denied,
    expected,
    lacking,
    perform,
    valid,
)
from pgjobs.admin.window import LARGEST_ID
from pgjobs.queue.control import VerbOutcome
from pgjobs.queue.models import OperatorAction
from pgjobs.workflows import verbs
from pgjobs.workflows.models import Execution

KIND = OperatorAction.Target.EXECUTION.value


@dataclass(frozen=True, slots=True)
class ExecutionVerb(Governed):
    """One thing a person may do to executions."""

    kind = KIND
    name: str
    done: str
    act: Callable[..., list[VerbOutcome]]
    effect: str
    confirm: bool = False
    needs_reason: bool = False


VERBS = {
    verb.name: verb
    for verb in (
        ExecutionVerb(
            "resume",
            "resumed",
            verbs.resume,
            "it goes on from its history, with a fresh crash budget.",
        ),
        ExecutionVerb(
            "retry",
            "retried",
            verbs.retry,
            "recorded steps stay; the step whose failure ended it runs again.",
        ),
        ExecutionVerb(
            "pause",
            "paused",
            verbs.pause,
            "it is held until it is resumed; what it waits for is still taken note of.",
        ),
        ExecutionVerb(
            "cancel",
            "cancelled",
            verbs.cancel,
            "it stops for good, with its children and the jobs it awaits that have not begun.",
            confirm=True,
            needs_reason=True,
        ),
    )
}


def urls(model_admin: Any) -> list[Any]:
    """One address per verb."""
    wrap = guarded(model_admin)
    return [
        path(
            f"<int:object_id>/{name}/",
            wrap(partial(verb_view, model_admin, name=name)),
            name=f"pgjobs_execution_{name}",
        )
        for name in VERBS
    ]


def may(model_admin: Any, request: HttpRequest, name: str) -> bool:
    """Whoever may not look may not act either."""
    return bool(model_admin.has_view_permission(request)) and request.user.has_perm(VERBS[name].permission)


def buttons(model_admin: Any, request: HttpRequest, execution: Any) -> list[dict[str, Any]]:
    """What the person may do; what does not fit the state says why."""
    return [
        _button(model_admin, verb, execution)
        for verb in VERBS.values()
        if may(model_admin, request, verb.name)
    ]


def _button(model_admin: Any, verb: ExecutionVerb, execution: Any) -> dict[str, Any]:
    fits = execution.status in verb.sources
    rule = ", ".join(sorted(verb.sources))
    return {
        "label": verb.name.capitalize(),
        "url": address(model_admin, verb.name, execution.pk),
        "fits": fits,
        "confirm": verb.confirm,
        "text": verb.effect if fits else f"it is {execution.status}; only {rule} ones can be {verb.done}.",
    }


def address(model_admin: Any, name: str, pk: Any) -> str:
    """Where a verb is asked for."""
    return reverse(f"admin:pgjobs_execution_{name}", args=[pk], current_app=model_admin.admin_site.name)


def find(model_admin: Any, request: HttpRequest, pk: int) -> Any:
    """The execution, or None."""
    return model_admin.get_object(request, str(pk)) if pk <= LARGEST_ID else None


def verb_view(model_admin: Any, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
    """GET asks, POST acts. The permission is asked here, not in the template."""
    verb = VERBS[name]
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    if permission := lacking(model_admin, request, verb.permission):
        if request.method != "POST":
            raise PermissionDenied
        return denied(request, name, permission, kind=KIND, ids=[object_id])
    execution = find(model_admin, request, object_id)
    if execution is None:
        answer: HttpResponse = model_admin.missing_page(request, str(object_id))
        return answer
    if request.method != "POST":
        return _ask(model_admin, request, verb, execution)
    act(request, verb, [object_id])
    return back(request, model_admin.url_of(object_id))


def _ask(model_admin: Any, request: HttpRequest, verb: ExecutionVerb, execution: Any) -> HttpResponse:
    context = {
        "verb": verb.name.capitalize(),
        "effect": verb.effect,
        "standing": f"Execution {execution.pk} ({execution.workflow_name}) is {execution.status}.",
        "expected": expected(execution),
        "url": address(model_admin, verb.name, execution.pk),
        "back_url": model_admin.url_of(execution.pk),
        "needs_reason": verb.needs_reason,
    }
    return respond(
        model_admin,
        request,
        "pgjobs/admin/confirm.html",
        lambda: context,
        title=f"{verb.name.capitalize()} execution {execution.pk}?",
        shared=False,
    )


def act(request: HttpRequest, verb: ExecutionVerb, ids: list[int]) -> None:
    """What a form asks for, if its reason is there and can be kept."""
    form = (NeededReasonForm if verb.needs_reason else ReasonForm)(request.POST)
    if valid(request, form):
        perform(request, verb, Execution, ids, form.cleaned_data["reason"])
