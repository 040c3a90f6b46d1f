"""The verbs on jobs: buttons with their effect, pages that ask before what is hard to undo, the POST that acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import path, reverse

from pgjobs.admin.guards import guarded
from pgjobs.admin.pages import respond
from pgjobs.admin.verbs import Governed, ReasonForm, back, denied, expected, lacking, perform, ticked, valid
from pgjobs.admin.window import LARGEST_ID
from pgjobs.queue import control
from pgjobs.queue.control import VerbOutcome
from pgjobs.queue.models import Job, OperatorAction

KIND = OperatorAction.Target.JOB.value
TICKED_AT_MOST = 100


@dataclass(frozen=True, slots=True)
class JobVerb(Governed):
    """One thing a person may do to a job, with a button of its own."""

    kind = KIND
    name: str
    label: str
    done: str
    act: Callable[..., list[VerbOutcome]]
    effect: str
    """What pressing the button does, for people."""
    confirm: bool = False
    """Whether a page of its own asks first."""

    def why_not(self, job: Any) -> str:
        """Why it does not fit a job as it stands; empty when it does."""
        if job.status not in self.sources:
            rule = ", ".join(sorted(self.sources))
            return f"it is {job.status}; only {rule} jobs can be {self.done}."
        if self.name == "retry" and (why := control.superseded(job)):
            return f"{why}."
        if self.name == "run_now" and job.available_at <= job.clock:
            return "it is due already; a worker takes it when it has a free slot."
        if self.name in ("discard", "restore") and (job.discarded_at is None) != (self.name == "discard"):
            return "it is discarded already." if self.name == "discard" else "it is not discarded."
        return ""


VERBS = {
    verb.name: verb
    for verb in (
        JobVerb(
            "retry",
            "Retry",
            "retried",
            control.retry,
            "back to the queue, due at once; the history stays.",
        ),
        JobVerb(
            "run_now",
            "Run now",
            "made due",
            control.run_now,
            "due at once instead of at its time.",
        ),
        JobVerb(
            "cancel",
            "Cancel",
            "cancelled",
            control.cancel,
            "a waiting job will not run; a running handler loses its lease and can change nothing.",
            confirm=True,
        ),
        JobVerb(
            "release",
            "Release",
            "released",
            control.release,
            "back to the queue for another worker. The process of before may still be alive; what it writes "
            "under its old lease is refused.",
            confirm=True,
        ),
        JobVerb(
            "discard",
            "Discard",
            "discarded",
            control.discard,
            "out of sight of lists and counts; it can be restored until retention removes it.",
            confirm=True,
        ),
        JobVerb(
            "restore",
            "Restore",
            "restored",
            control.restore,
            "back into sight, as it ended.",
        ),
    )
}


def urls(model_admin: Any) -> list[Any]:
    """One address per verb on one job, and one per verb on ticked ones."""
    wrap = guarded(model_admin)
    found = []
    for name in VERBS:
        one, many = partial(verb_view, model_admin, name=name), partial(many_view, model_admin, name=name)
        found.append(path(f"<int:object_id>/{name}/", wrap(one), name=f"pgjobs_job_{name}"))
        found.append(path(f"ticked/{name}/", wrap(many), name=f"pgjobs_job_{name}_ticked"))
    return found


def may(model_admin: Any, request: HttpRequest, name: str) -> bool:
    """Whoever may not look may not act either."""
    return bool(model_admin.has_view_permission(request)) and request.user.has_perm(VERBS[name].permission)


def address(model_admin: Any, name: str, pk: Any) -> str:
    """Where a verb on one job is asked for."""
    return reverse(f"admin:pgjobs_job_{name}", args=[pk], current_app=model_admin.admin_site.name)


def buttons(model_admin: Any, request: HttpRequest, job: Any) -> list[dict[str, Any]]:
    """What the person may do; what does not fit the state says why."""
    found = []
    for verb in VERBS.values():
        why_not = verb.why_not(job)
        if not may(model_admin, request, verb.name) or (why_not and verb.name == "restore"):
            continue
        found.append(
            {
                "label": verb.label,
                "url": address(model_admin, verb.name, job.pk),
                "fits": not why_not,
                "confirm": verb.confirm,
                "text": why_not or verb.effect,
            }
        )
    return found


def verb_view(model_admin: Any, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
    """GET asks, POST acts on one job. The permission is asked here, not in the template."""
    verb = VERBS[name]
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    if refused := refusal(model_admin, request, verb, [object_id]):
        return refused
    job: Any = model_admin.get_object(request, str(object_id)) if object_id <= LARGEST_ID else None
    archived = model_admin.archived_page(str(object_id)) if job is None else None
    if job is None and archived is None:
        missing: HttpResponse = model_admin.missing_page(request, str(object_id))
        return missing
    if request.method != "POST":
        return archived or _ask(model_admin, request, verb, job)
    act(request, verb, [object_id])
    return back(request, model_admin.url_of(object_id))


def many_view(model_admin: Any, request: HttpRequest, name: str) -> HttpResponse:
    """POST acts on the ticked jobs, at most a page of them."""
    verb, ids = VERBS[name], ticked(request)
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    if refused := refusal(model_admin, request, verb, ids):
        return refused
    home = reverse("admin:pgjobs_job_changelist", current_app=model_admin.admin_site.name)
    if not ids:
        messages.warning(request, "Nothing was done: no job was ticked.")
    else:
        act(request, verb, ids)
    return back(request, home)


def refusal(model_admin: Any, request: HttpRequest, verb: JobVerb, ids: list[int]) -> HttpResponse | None:
    """The answer to somebody who may not; None for who may."""
    permission = lacking(model_admin, request, verb.permission)
    if not permission:
        return None
    if request.method != "POST":
        raise PermissionDenied
    return denied(request, verb.name, permission, kind=KIND, ids=ids)


def _ask(model_admin: Any, request: HttpRequest, verb: JobVerb, job: Any) -> HttpResponse:
    why_not = verb.why_not(job)
    context = {
        "verb": verb.label,
        "effect": verb.effect,
        "standing": f"Job {job.pk} ({job.job_type}, queue {job.queue}) is {job.status}, attempt {job.attempt_count}.",
        "why_not": why_not,
        "expected": expected(job),
        "url": address(model_admin, verb.name, job.pk),
        "back_url": model_admin.url_of(job.pk),
    }
    title = f"{verb.label} job {job.pk}?"
    return respond(
        model_admin, request, "pgjobs/admin/confirm.html", lambda: context, title=title, shared=False
    )


def act(request: HttpRequest, verb: JobVerb, ids: list[int]) -> None:
    """What a form asks for, if its reason can be kept."""
    form = ReasonForm(request.POST)
    if len(ids) > TICKED_AT_MOST:
        messages.error(
            request, f"Nothing was done: {len(ids)} are ticked, and {TICKED_AT_MOST} are the most."
        )
    elif valid(request, form):
        perform(request, verb, Job, ids, form.cleaned_data["reason"])
