"""The demo's second act: two failed checks become incidents; workers are killed; one fix is approved, one rejected."""

import logging
import os
import secrets
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.files.base import ContentFile
from django.test import RequestFactory

from example_project.demo.crew import Crew
from example_project.demo.display import Display
from example_project.demo.paper import write_pdf
from example_project.documents.intake import receive
from example_project.incidents import conf
from example_project.incidents.models import Incident, StepStart
from example_project.incidents.repository import Repository
from example_project.incidents.signature import sign
from example_project.incidents.steps import branch_of
from example_project.incidents.webhook import github
from pgjobs.models import Execution, StepOutput, Wait, Worker
from pgjobs.workflows.approvals import decide
from pgjobs.workflows.states import TERMINAL, ExecutionStatus

DELIVERIES = Path(__file__).parent / "deliveries"
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 40.0
STEP_TO_STRIKE = "open_pull_request"
SETTINGS = {
    "INCIDENTS_APPROVAL_SECONDS": "7200",
    "INCIDENTS_COOL_DOWN_SECONDS": "2",
    "INCIDENTS_STEP_DELAY": "1.5",
    "INCIDENTS_FIX_FAILURES": "1",
}


class TooLong(RuntimeError):
    """Something of the story did not happen in time; the text says what."""


@dataclass
class IncidentStory:
    """What was done, for the report to judge."""

    approved: Incident
    rejected: Incident
    approver: str = "demo-approver"
    reviewer: str = "demo-reviewer"
    waiting_changed: list[str] = field(default_factory=list)
    """What the kill of a worker changed in executions that were waiting: nothing, if all is well."""
    struck_in_step: bool = False
    """A worker was killed after the branch was there and before the step was recorded."""
    late: str = ""
    """What did not happen in time."""


@contextmanager
def incidents_in_a_hurry() -> Iterator[None]:
    """Short waits and a secret for the incidents of this process and its children."""
    given = {**SETTINGS, "INCIDENTS_WEBHOOK_SECRET": secrets.token_urlsafe(24)}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    logger = logging.getLogger("pgjobs.approvals")
    level = logger.level
    logger.setLevel(logging.WARNING)  # the story says the same, and keeps the live table whole
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def play(crew: Crew, display: Display) -> IncidentStory:
    """Two incidents from delivery to end, with a worker killed while they wait and another inside a step."""
    display.text()
    receive([ContentFile(write_pdf("Runbook of the shop", 2), name="shop-runbook.pdf")])
    story = IncidentStory(
        approved=_deliver("check_run", display), rejected=_deliver("deployment_status", display)
    )
    try:
        waits = [_wait_of(incident, crew) for incident in (story.approved, story.rejected)]
        display.note("both executions wait for a person: one row each, no lease, no slot")
        _kill_while_they_wait(story, crew, display)
        _decide(waits[0], True, story.approver, "looks right", display)
        _decide(waits[1], False, story.reviewer, "the cache is not the cause", display)
        _kill_inside_the_step(story, crew, display)
        for incident in (story.approved, story.rejected):
            _until(lambda pk=incident.execution_id: _status(pk) in TERMINAL, f"the end of {incident}", crew)
        display.note("both executions have ended")
    except TooLong as late:
        story.late = str(late)
    return story


def leave_one_open() -> str:
    """One more incident, for the person at the pages: its title."""
    _, incident = deliver("deployment_status", str(uuid.uuid4()))
    return str(incident)


def deliver(event: str, delivery: str) -> tuple[int, Incident | None]:
    """Send a body to the webhook as GitHub would, signed: (status code, incident)."""
    body = (DELIVERIES / f"{event}.json").read_bytes()
    request = RequestFactory().post(
        "/incidents/webhook/github",
        data=body,
        content_type="application/json",
        headers={
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery,
            "X-Hub-Signature-256": sign(body, conf.webhook_secret()),
        },
    )
    response = github(request)
    return response.status_code, Incident.objects.filter(delivery=delivery).first()


def _deliver(event: str, display: Display) -> Incident:
    delivery = str(uuid.uuid4())
    code, incident = deliver(event, delivery)
    again, same = deliver(event, delivery)
    if incident is None or incident != same or (code, again) != (202, 200):
        raise RuntimeError(f"The webhook answered {code} and {again} to a delivery and its redelivery.")
    display.note(f"webhook: {incident} started execution {incident.execution_id}; the redelivery nothing")
    return incident


def _wait_of(incident: Incident, crew: Crew) -> Wait:
    """The execution's open approval, once it is parked at it."""
    waits = Wait.objects.filter(execution_id=incident.execution_id, kind="approval", resolved_at__isnull=True)
    parked = waits.filter(execution__status=ExecutionStatus.WAITING)
    return _until(parked.first, f"the approval of {incident}", crew)


def _kill_while_they_wait(story: IncidentStory, crew: Crew, display: Display) -> None:
    """The process that ran the steps dies, and is replaced, and nothing else happens."""
    ids = [story.approved.execution_id, story.rejected.execution_id]
    before, workers = _standing(ids), Worker.objects.count()
    pid = StepStart.objects.filter(incident=story.approved).latest("id").pid
    os.kill(pid, signal.SIGKILL)
    display.note(f"SIGKILL to worker process {pid}, which had carried {story.approved} so far")
    _until(lambda: Worker.objects.count() > workers, "the killed worker's successor", crew)
    story.waiting_changed = [
        f"{was} became {now}" for was, now in zip(before, _standing(ids), strict=True) if was != now
    ]


def _standing(ids: list[int]) -> list[tuple[Any, ...]]:
    columns = ("id", "status", "attempt_count", "crash_count")
    return list(Execution.objects.filter(pk__in=ids).order_by("pk").values_list(*columns))


def _decide(wait: Wait, approved: bool, name: str, reason: str, display: Display) -> None:
    user, _ = get_user_model().objects.get_or_create(username=name)
    permission = Permission.objects.get(codename="approve_fix", content_type__app_label="incidents")
    user.user_permissions.add(permission)
    outcome = decide(wait.pk, approved=approved, actor=user, reason=reason, shown_hash=wait.context_hash)
    display.note(f'"{wait.context["fix"]}" was {outcome.message}: {reason}')


def _kill_inside_the_step(story: IncidentStory, crew: Crew, display: Display) -> None:
    """Between the step's effect, which is the branch, and its record: the moment that costs most."""
    pk = story.approved.execution_id
    repository = Repository(story.approved.repository)
    commit = _until(lambda: repository.commit_of(branch_of(pk)), "the branch in git", crew)
    start = StepStart.objects.filter(incident=story.approved, step=STEP_TO_STRIKE).latest("id")
    os.kill(start.pid, signal.SIGKILL)
    story.struck_in_step = not StepOutput.objects.filter(
        execution_id=pk, step_id=f"{STEP_TO_STRIKE}#1"
    ).exists()
    display.note(
        f"SIGKILL to worker process {start.pid} inside {STEP_TO_STRIKE}: its branch is at {commit[:10]}, "
        f"its record not written"
    )


def _status(execution_id: int) -> str:
    return Execution.objects.values_list("status", flat=True).get(pk=execution_id)


def _until(condition: Callable[[], Any], what: str, crew: Crew) -> Any:
    """The first true value. Raises TooLong, and ChildFailed when the workers have ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        crew.check()
        if time.monotonic() > deadline:
            raise TooLong(f"{what} did not come within {PATIENCE_SECONDS:g} s.")
        time.sleep(LOOK_SECONDS)
    return value
