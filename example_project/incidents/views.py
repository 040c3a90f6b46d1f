"""Incidents for people: a list, one with its timeline, and the decision on its fix."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST
from django.views.generic import DetailView, ListView

from example_project.incidents.forms import DecisionForm
from example_project.incidents.history import timeline
from example_project.incidents.models import Incident
from pgjobs.models import ArchivedExecution, Wait
from pgjobs.workflows.approvals import decide, may_decide
from pgjobs.workflows.states import TERMINAL, ExecutionStatus

REFRESH_SECONDS = 2
WORDS = {
    ExecutionStatus.ENQUEUED: "to be continued",
    ExecutionStatus.RUNNING: "at work",
    ExecutionStatus.WAITING: "waiting",
    ExecutionStatus.PAUSED: "needs an operator",
    ExecutionStatus.SUCCEEDED: "done",
    ExecutionStatus.FAILED: "failed",
    ExecutionStatus.CANCELLED: "cancelled",
}


def with_executions() -> QuerySet[Incident]:
    """Incidents with what the pages show of their executions, in one query; payloads stay in the database."""
    return Incident.objects.select_related("execution").defer(
        "payload", "execution__input", "execution__errors"
    )


def state_of(incident: Incident) -> dict[str, str]:
    """The execution's status, and a word for people."""
    execution = incident.execution
    if execution is None:
        archived = ArchivedExecution.objects.filter(pk=incident.execution_id).only("status").first()
        status = archived.status if archived else ""
        return {"status": status, "word": WORDS[ExecutionStatus(status)] if status else "long ago"}
    word = WORDS[ExecutionStatus(execution.status)]
    if execution.status == ExecutionStatus.SUCCEEDED and isinstance(execution.output, dict):
        word = "fixed" if execution.output.get("applied") else "fix rejected"
    return {"status": execution.status, "word": word}


class IncidentList(ListView):
    template_name = "incidents/list.html"
    paginate_by = 50

    def get_queryset(self) -> QuerySet[Incident]:
        return with_executions().select_related("finding", "fix__change__pullrequest")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        return context | {"rows": [(incident, state_of(incident)) for incident in context["page_obj"]]}


class IncidentDetail(DetailView):
    template_name = "incidents/detail.html"

    def get_queryset(self) -> QuerySet[Incident]:
        return with_executions().select_related("finding", "fix__change__pullrequest")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        return context | detail_context(self.request, self.object)


def detail_context(
    request: HttpRequest, incident: Incident, form: DecisionForm | None = None
) -> dict[str, Any]:
    """What the page of an incident shows. It reloads itself while a machine works, not while a person writes."""
    wait = _open_approval(incident)
    allowed, why_not = may_decide(request.user, wait) if wait else (False, "")
    if wait and form is None:
        form = DecisionForm(initial={"wait": wait.pk, "shown": wait.context_hash})
    moving = incident.execution is not None and incident.execution.status not in TERMINAL and wait is None
    return {
        "incident": incident,
        "state": state_of(incident),
        "events": timeline(incident.execution_id) if incident.execution_id else [],
        "wait": wait,
        "allowed": allowed,
        "why_not": why_not,
        "form": form,
        "refresh_seconds": REFRESH_SECONDS if moving else None,
    }


@require_POST
@login_required(login_url="incidents:login")
def decision(request: HttpRequest, pk: int) -> HttpResponse:
    """Decide on an incident's fix. Whether this person may, and in time, is judged by ``decide`` alone."""
    incident = get_object_or_404(IncidentDetail().get_queryset(), pk=pk)
    form = DecisionForm(request.POST)
    if not form.is_valid():
        return render(request, "incidents/detail.html", detail_context(request, incident, form), status=400)
    given = form.cleaned_data
    wait = get_object_or_404(Wait, pk=given["wait"], execution_id=incident.execution_id)
    outcome = decide(
        wait.pk,
        approved=given["decision"] == "approve",
        actor=request.user,
        reason=given["reason"],
        shown_hash=given["shown"],
    )
    tell = messages.success if outcome.done else messages.error
    tell(request, f"{outcome.message[:1].upper()}{outcome.message[1:]}.")
    return redirect(incident)


def _open_approval(incident: Incident) -> Wait | None:
    if incident.execution_id is None:
        return None
    waits = Wait.objects.filter(execution_id=incident.execution_id, kind="approval", resolved_at__isnull=True)
    return waits.select_related("execution").first()
