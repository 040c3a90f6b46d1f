"""The page of one execution: where it stands, its timeline, what it waits for, and the verbs that fit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from pgjobs import redaction
from pgjobs.admin import attempts, audited, flowverbs, fork, marks, navigation, newer, timeline, whypanel
from pgjobs.admin.ages import in_words, lease_in_words, moment
from pgjobs.admin.frames import RowPage
from pgjobs.admin.limits import Panel, panel
from pgjobs.admin.tree import tree
from pgjobs.admin.verbs import expected
from pgjobs.conf import get_settings
from pgjobs.workflows.forking import place_of
from pgjobs.workflows.models import Execution, StepOutput
from pgjobs.workflows.states import TERMINAL, ExecutionStatus

if TYPE_CHECKING:
    from pgjobs.admin.readonly import ReadOnlyAdmin as Base
else:
    Base = object

_SECONDS = 5
_MOST_RELATIVES = 50


class WorkflowPage(RowPage, Base):
    """Mixed into the admin of executions."""

    row_template, row_seconds, row_word = "pgjobs/admin/workflow.html", _SECONDS, "Execution"

    def get_urls(self) -> list[Any]:
        """The addresses of the verbs, beside Django's own."""
        return [*newer.urls(self), *flowverbs.urls(self), *fork.urls(self), *super().get_urls()]

    def page(self, request: HttpRequest, row: Any) -> HttpResponse:
        """The page of an execution that was found."""
        title = f"Workflow {row.pk}: {row.workflow_name}"
        return self.framed(request, title, lambda: self.content(request, row))

    def content(self, request: HttpRequest, execution: Any) -> dict[str, Any]:
        """What the page shows."""
        name, site = execution.workflow_name, self.admin_site
        terminal = execution.status in TERMINAL
        links = fork.links(self, request, execution)
        return {
            "interval": 0 if terminal else _SECONDS,
            "state": marks.state(execution.status),
            "execution_id": str(execution.pk),
            "since": _since(execution),
            "error": _text(execution, execution.pause_reason or execution.last_error),
            "why": None if terminal else whypanel.of_execution(execution.pk, site),
            "note": _text(execution, execution.note),
            "facts": _facts(execution),
            "buttons": flowverbs.buttons(self, request, execution),
            "expected": expected(execution),
            "fork_url": links["fork"],
            "signal_url": links["signal"],
            "activity_url": navigation.activity(site, request, target=f"execution:{execution.pk}"),
            "failed_at": _failed_at(execution) if links["fork"] else None,
            "timeline": panel(lambda: _timeline(request, execution, site)),
            "step": panel(lambda: _step(execution, request.GET["step"])) if "step" in request.GET else None,
            "input": tree(redaction.redacted(execution.input, workflow=name)),
            "output": None
            if execution.output is None
            else tree(redaction.redacted(execution.output, workflow=name)),
            "attempts": attempts.of(
                redaction.redacted_texts(execution.errors, payload=execution.input, workflow=name),
                execution.clock,
            ),
            "relatives": panel(lambda: _relatives(execution, site)),
            "audit": audited.panel_of_execution(execution.pk, execution.clock, partial(_text, execution)),
        }


def _timeline(request: HttpRequest, execution: Any, site: Any) -> dict[str, Any]:
    first = request.GET.get("from", "")
    return timeline.of(
        execution,
        site,
        first=int(first) if first.isdecimal() and len(first) < 10 else 0,
        failed_only=request.GET.get("failed") == "1",
    )


def _failed_at(execution: Any) -> Panel | None:
    """The call that failed, of an execution that has."""
    if execution.status != ExecutionStatus.FAILED:
        return None
    return panel(lambda: place_of(execution.pk, None, using=get_settings().database))


def _text(execution: Any, text: str) -> str:
    """Without the secrets that the input names, as the page of a job goes by its payload."""
    return redaction.redacted_text(text, payload=execution.input, workflow=execution.workflow_name)


def _since(execution: Any) -> Any:
    if execution.completed_at:
        took = in_words(execution.completed_at - execution.created_at)
        return f"after {took}, {in_words(execution.clock - execution.completed_at)} ago"
    return f"for {in_words(execution.clock - execution.updated_at)}"


def _facts(execution: Any) -> list[tuple[str, Any]]:
    running = execution.status == ExecutionStatus.RUNNING
    pairs = [
        ("Workflow", f"{execution.workflow_name}, version {execution.version}"),
        ("Key", execution.key),
        ("Subject", _subject(execution) if execution.subject_id else ""),
        ("Queue", execution.queue),
        ("Held by", execution.lease_owner),
        ("Lease", lease_in_words(execution.lease_expires_at - execution.clock) if running else ""),
        ("Turns", str(execution.attempt_count)),
        ("Crashes", f"{execution.crash_count} of {execution.max_crashes}" if execution.crash_count else ""),
        ("Started", moment(execution.created_at, execution.clock)),
        ("Started by (user id)", execution.started_by),
        ("Ended", moment(execution.completed_at, execution.clock)),
    ]
    return [(name, value) for name, value in pairs if value not in (None, "", "-")]


def _subject(execution: Any) -> str:
    """A row of the project's, as that calls it."""
    read = panel(lambda: str(execution.subject))
    return str(read.problem or read.value)


def _relatives(execution: Any, site: Any) -> list[tuple[str, Any]]:
    """Parent, children, and what it continues or was forked from."""

    def link(pk: int, text: str = "") -> Any:
        url = reverse("admin:pgjobs_execution_change", args=[pk], current_app=site.name)
        return marks.link(url, text or f"execution {pk}")

    rows = Execution._base_manager.using(get_settings().database)
    found = [("Parent", link(execution.parent_id))] if execution.parent_id else []
    if execution.continued_from_id:
        found.append(("Continues", link(execution.continued_from_id)))
    if execution.origin_id:
        found.append(("Forked, first from", link(execution.origin_id)))
    for pk in rows.filter(continued_from=execution.pk).values_list("pk", flat=True):
        found.append(("Goes on as", link(pk)))
    children = rows.filter(parent=execution.pk).order_by("pk").values_list("pk", "workflow_name", "status")
    for pk, name, status in children[:_MOST_RELATIVES]:
        found.append(("Child", link(pk, f"{pk} {name}: {status}")))
    return found


def _step(execution: Any, step_id: str) -> dict[str, Any] | None:
    """The whole of one recorded step."""
    if "\x00" in step_id:
        return None
    steps = StepOutput._base_manager.using(get_settings().database)
    step = steps.filter(execution=execution, step_id=step_id).first()
    if step is None:
        return None
    name = execution.workflow_name
    error = redaction.redacted_texts(step.error, payload=execution.input, workflow=name)
    return {
        "id": step.step_id,
        "output": tree(redaction.redacted(step.output, workflow=name)),
        "error": tree(error) if step.error else None,
    }
