"""Retry with options, and edit and retry: a page that says what will happen before it does."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from pgjobs import redaction
from pgjobs.admin import jobverbs, navigation
from pgjobs.admin.guards import guarded
from pgjobs.admin.limits import PANEL_SECONDS, Undone, acting, limited, panel
from pgjobs.admin.pages import changed, respond
from pgjobs.admin.verbs import actor_of, denied, expected, log, perform, problems, seen
from pgjobs.admin.window import LARGEST_ID
from pgjobs.conf import get_settings
from pgjobs.exceptions import PgJobsError
from pgjobs.queue import editing, rights, stats
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.names import unknown
from pgjobs.queue.registry import registry

EDIT_PERMISSION = rights.right("job", "edit_copy").permission
_MOST_CHANGES = 50


class RetryForm(forms.Form):
    """How a job is to run again."""

    more_attempts = forms.IntegerField(min_value=1, max_value=10_000, required=False)
    in_minutes = forms.IntegerField(min_value=0, max_value=525_600, required=False)
    priority = forms.IntegerField(min_value=-32_768, max_value=32_767, required=False)
    queue = forms.CharField(max_length=100, required=False)
    reason = forms.CharField(max_length=200, required=False)

    def options(self) -> dict[str, Any]:
        """As the verbs take them; what was left empty is left as it is."""
        given = self.cleaned_data
        found = {name: given[name] for name in ("more_attempts", "priority") if given[name] is not None}
        if given["queue"]:
            found["queue"] = given["queue"]
        if given["in_minutes"]:
            found["run_after"] = timedelta(minutes=given["in_minutes"])
        return found


def urls(model_admin: Any) -> list[Any]:
    """The page, which takes the place of the plain question before a retry."""
    view = guarded(model_admin)(partial(retry_view, model_admin))
    return [path("<int:object_id>/options/", view, name="pgjobs_job_options")]


def retry_view(model_admin: Any, request: HttpRequest, object_id: int) -> HttpResponse:
    """GET and ``?preview=1`` show; the POST of the last button retries, or makes an edited copy."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    if refused := jobverbs.refusal(model_admin, request, jobverbs.VERBS["retry"], [object_id]):
        return refused
    job: Any = model_admin.get_object(request, str(object_id)) if object_id <= LARGEST_ID else None
    if job is None:
        missing: HttpResponse = model_admin.missing_page(request, str(object_id))
        return missing
    edits = request.POST.get("edit") == "1"
    if edits and not request.user.has_perm(EDIT_PERMISSION):
        return denied(request, "edit_copy", EDIT_PERMISSION, kind="job", ids=[object_id])
    if request.method != "POST":
        return _page(model_admin, request, job)
    saw = seen(request, "job", [object_id])
    form = RetryForm(request.POST)
    if not form.is_valid():
        return _page(model_admin, request, job, problems=problems(form))
    if misspelt := _misspelt(form):
        return _page(model_admin, request, job, problems=[misspelt])
    if not edits and _was_edited(request, job):
        told = "The payload in the form was changed. Press Retry edited to run that; a plain retry leaves it as it is."
        return _page(model_admin, request, job, problems=[told])
    if not edits:
        reason = form.cleaned_data["reason"]
        try:
            perform(request, jobverbs.VERBS["retry"], Job, [object_id], reason, **form.options())
        except (PgJobsError, Undone) as error:
            return _page(model_admin, request, job, problems=[str(error)])
        return HttpResponseRedirect(model_admin.url_of(object_id))
    return _edit(model_admin, request, job, form, saw[object_id])


def _misspelt(form: RetryForm) -> str:
    """What is wrong with the queue that was typed: a job moved to a misspelt one would wait there for ever."""
    name = form.cleaned_data["queue"]
    with limited(PANEL_SECONDS):
        return unknown("queue", name) if name else ""


def _was_edited(request: HttpRequest, job: Any) -> bool:
    """Whether the text of the form is something else than was shown."""
    text = request.POST.get("payload", "")
    if not text.strip():
        return False
    try:
        return bool(_parsed(text) != redaction.redacted(job.payload, job_type=job.job_type))
    except ValueError:
        return True


def _edit(
    model_admin: Any, request: HttpRequest, job: Any, form: RetryForm, saw: tuple[str, int]
) -> HttpResponse:
    text = request.POST.get("payload", "")
    try:
        edited = _parsed(text)
        payload = redaction.merged(edited, job.payload, job_type=job.job_type)
    except (ValueError, PgJobsError) as error:
        return _page(model_admin, request, job, problems=[str(error)])
    changes = differences(job, edited)
    if "preview" in request.GET:
        return _page(model_admin, request, job, changes=changes, previewed=True)
    using, options = get_settings().database, form.options()
    options["max_attempts"] = options.pop("more_attempts", None)
    try:
        with acting():
            outcome = editing.edit_copy(
                job.pk,
                payload,
                actor=actor_of(request),
                reason=form.cleaned_data["reason"],
                expected=saw,
                **options,
            )
            if outcome.done:
                log(request, Job, [job.pk], outcome.message, form.cleaned_data["reason"], using)
    except (PgJobsError, Undone) as error:
        return _page(model_admin, request, job, problems=[str(error)], changes=changes)
    changed()
    if not outcome.done:
        messages.warning(request, f"Nothing was done: {outcome.message}.")
        return HttpResponseRedirect(model_admin.url_of(job.pk))
    messages.success(request, f"Job {job.pk}: {outcome.message}.")
    return HttpResponseRedirect(model_admin.url_of(outcome.made or job.pk))


def _parsed(text: str) -> Any:
    """The payload as it was written. Raises ValueError with line and column."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"The payload is no JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    if not isinstance(value, dict):
        raise ValueError("The payload must be an object: the names of arguments with their values.")
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"The payload is no JSON: {name} is no number of JSON.")


def differences(job: Any, edited: Any) -> list[tuple[str, str, str]]:
    """Where the edited payload differs from what was shown: place, before, after. Secrets stay masked in both."""
    before = redaction.redacted(job.payload, job_type=job.job_type)
    after = redaction.redacted(edited, job_type=job.job_type)
    found: list[tuple[str, str, str]] = []
    _compare(before, after, "", found)
    return found[:_MOST_CHANGES]


def _compare(before: Any, after: Any, place: str, found: list[tuple[str, str, str]]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            inner = f"{place}.{name}" if place else name
            _compare(before.get(name, _NOTHING), after.get(name, _NOTHING), inner, found)
    elif before is _NOTHING or after is _NOTHING or (before, type(before)) != (after, type(after)):
        found.append((place or "payload", _text(before), _text(after)))


_NOTHING: Any = object()


def _text(value: Any) -> str:
    return "(nothing)" if value is _NOTHING else json.dumps(value, ensure_ascii=False)[:500]


def _page(
    model_admin: Any,
    request: HttpRequest,
    job: Any,
    *,
    problems: list[str] | None = None,
    changes: list[tuple[str, str, str]] | None = None,
    previewed: bool = False,
) -> HttpResponse:
    verb = jobverbs.VERBS["retry"]
    shown = json.dumps(redaction.redacted(job.payload, job_type=job.job_type), indent=2, ensure_ascii=False)
    context = {
        "job_id": str(job.pk),
        "standing": f"{job.job_type}, queue {job.queue}: {job.status}, "
        f"attempt {job.attempt_count} of {job.max_attempts}.",
        "why_not": verb.why_not(job),
        "problems": problems or [],
        "warnings": panel(lambda: _warnings(job)).value or [],
        "given": {name: request.POST.get(name, "") for name in RetryForm.base_fields},
        "queues": panel(stats.queue_names),
        "priority": str(job.priority),
        "may_edit": request.user.has_perm(EDIT_PERMISSION),
        "editing": request.POST.get("edit") == "1",
        "payload": request.POST.get("payload", shown),
        "changes": changes,
        "previewed": previewed,
        "expected": request.POST.get("expected", expected(job)),
        "url": reverse("admin:pgjobs_job_options", args=[job.pk], current_app=model_admin.admin_site.name),
        "back_url": model_admin.url_of(job.pk),
    }
    return respond(
        model_admin,
        request,
        "pgjobs/admin/retry.html",
        lambda: context,
        title=f"Retry job {job.pk}",
        crumbs=navigation.crumbs(model_admin.admin_site, "job"),
        shared=False,
    )


def _warnings(job: Any) -> list[str]:
    found = []
    if job.job_type not in registry.names():
        found.append(f"No handler of this process carries {job.job_type}: it waits for a worker that does.")
    if job.idempotency_key:
        results = JobResult._base_manager.using(get_settings().database).filter(pk=job.idempotency_key)
        if (maker := results.values_list("job_id", flat=True).first()) is not None:
            found.append(
                f"Job {maker} has produced the result of the key {job.idempotency_key}: "
                f"a retry succeeds with that result and runs nothing."
            )
    if not any(not each.queues or job.queue in each.queues for each in stats.live_workers()):
        found.append(f"No live worker serves the queue {job.queue}: the job will wait.")
    return found
