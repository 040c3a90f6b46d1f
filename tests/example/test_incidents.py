"""Incidents carried by real workers: approved, rejected, left undecided, and with workers killed on the way."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse

from example_project.demo.paper import write_pdf
from example_project.documents.models import Document, Page
from example_project.incidents.history import rejected_fixes, timeline
from example_project.incidents.models import Change, Finding, Fix, Incident, PullRequest, StepStart
from example_project.incidents.repository import PIPELINE, Repository
from example_project.incidents.steps import branch_of
from pgjobs.models import Execution, Job, StepOutput, Wait, Worker
from pgjobs.workflows.approvals import decide
from pgjobs.workflows.states import TERMINAL
from tests.example.deliveries import incident
from tests.support.waiting import wait_until
from tests.support.workers import Spawner, Workers
from tests.workflows.rows import user

HURRY = {"CRASH_DELAY_SECONDS": 0.1, "CRASH_DELAY_CAP_SECONDS": 0.5, "REAP_SECONDS": 0.3}
RECORDED = [
    "find_root_cause#1",
    "generate_fix#1",
    "list_runbooks#1",
    "gather#1",
    "record change#1",
    "open_pull_request#1",
]

pytestmark = [pytest.mark.workers, pytest.mark.usefixtures("media_root")]


@pytest.fixture(autouse=True)
def short_waits(settings: Any) -> None:
    settings.INCIDENTS_COOL_DOWN_SECONDS = 0.3


@pytest.fixture
def start(spawn_workers: Spawner) -> Callable[..., Workers]:
    """Starts workers in a hurry; keywords are settings of the app."""

    def run(processes: int = 1, **settings: Any) -> Workers:
        given = {f"INCIDENTS_{name.upper()}": str(value) for name, value in settings.items()}
        return spawn_workers(processes=processes, env={"PGJOBS_OVERRIDES": json.dumps(HURRY), **given})

    return run


def unread(*titles: str) -> list[Document]:
    """Documents that nobody has read yet, nor has a job to read them."""
    found = []
    for title in titles:
        document = Document(title=title, sha256="0" * 64, size=1)
        document.file.save(title, ContentFile(write_pdf(title, 2)), save=True)
        found.append(document)
    return found


def asked(of: Incident) -> Wait:
    """The incident's approval, once its execution is parked at it."""
    waits = Wait.objects.filter(execution_id=of.execution_id, kind="approval", execution__status="waiting")
    return wait_until(waits.first, 60, lambda: f"the approval; {describe(of)}")


def ended(of: Incident) -> Execution:
    executions = Execution.objects.filter(pk=of.execution_id, status__in=TERMINAL)
    return wait_until(executions.first, 60, lambda: f"the end; {describe(of)}")


def describe(of: Incident) -> str:
    columns = ("status", "pause_reason", "last_error", "attempt_count", "crash_count")
    return str(Execution.objects.filter(pk=of.execution_id).values(*columns).first())


def starts(of: Incident, step: str) -> list[StepStart]:
    return list(of.step_starts.filter(step=step))


def records(of: Incident) -> dict[str, tuple[Any, ...]]:
    """What is recorded of each step, down to the version of its row."""
    rows = StepOutput.objects.filter(execution_id=of.execution_id).extra(select={"v": "xmin::text"})
    return {row.step_id: (row.pk, row.output, row.recorded_at, row.v) for row in rows}


def assert_one_pull_request(of: Incident) -> PullRequest:
    request = PullRequest.objects.get()
    repository = Repository(of.repository)
    assert request.branch == branch_of(of.execution_id)
    assert repository.branches() == [request.branch]
    assert repository.commit_of(request.branch) == request.commit
    assert Change.objects.get() == request.change
    return request


@pytest.fixture
def approver(transactional_db: None) -> Iterator[Any]:
    yield user("anna", "incidents.approve_fix")


def test_an_approved_fix_becomes_a_pull_request(
    start: Callable[..., Workers], approver: Any, client: Client
) -> None:
    good, second = unread("good.pdf", "second.pdf")
    (bad,) = unread("bad.pdf")
    Path(bad.file.path).write_bytes(b"torn")
    made = incident(outcome="timed_out", documents=[good, second, bad])
    start(2)
    wait = asked(made)
    assert wait.permission == "incidents.approve_fix" and wait.on_timeout == "reject"
    assert wait.context["pages"] == 4 and "+timeout_minutes = 30" in wait.context["patch"]
    assert Page.objects.count() == 4 and Job.objects.count() == 3
    assert not Change.objects.exists() and Repository(made.repository).branches() == []

    client.force_login(approver)
    form = {"wait": wait.pk, "shown": wait.context_hash, "decision": "approve", "reason": "go on"}
    client.post(reverse("incidents:decision", args=[made.pk]), form)
    execution = ended(made)

    assert execution.status == "succeeded", execution.last_error
    request = assert_one_pull_request(made)
    pull = {"branch": request.branch, "commit": request.commit}
    assert execution.output == {"applied": True, "pull_request": pull}
    assert (request.change.approved_by, request.change.reason) == ("anna", "go on")
    assert request.change.fix == Fix.objects.get() and Finding.objects.get().cause == "slow"
    assert sorted(records(made)) == sorted(RECORDED)
    assert {start.step for start in made.step_starts.all()} <= {name.partition("#")[0] for name in RECORDED}
    assert made.step_starts.count() == 4 and Job.objects.count() == 3
    sleep = Wait.objects.get(execution=execution, kind="sleep")
    assert sleep.resolved_at >= sleep.wake_at
    page = client.get(made.get_absolute_url()).content.decode()
    assert request.branch in page and "cool down#1" in page and "by anna: go on" in page and ">fixed<" in page


def test_a_rejected_fix_is_not_applied(start: Callable[..., Workers], approver: Any) -> None:
    made = incident()
    start()
    wait = asked(made)
    assert decide(wait.pk, approved=False, actor=approver, reason="too risky").done
    execution = ended(made)
    assert execution.output == {"applied": False, "by": "anna", "reason": "too risky"}
    assert not Change.objects.exists() and Repository(made.repository).branches() == []
    assert not Job.objects.exists()  # no runbooks, nothing to fan out
    _, columns, rows = rejected_fixes()
    (told,) = (dict(zip(columns, row, strict=True)) for row in rows)
    assert (told["step"], told["rejected_by"], told["reason"]) == ("apply fix#1", "anna", "too risky")
    assert told["fix"] == Fix.objects.get().summary


def test_an_undecided_fix_is_rejected_by_time(start: Callable[..., Workers], settings: Any) -> None:
    settings.INCIDENTS_APPROVAL_SECONDS = 0.5
    made = incident()
    start()
    execution = ended(made)
    assert execution.output["applied"] is False and execution.output["by"] is None
    _, columns, rows = rejected_fixes()
    assert dict(zip(columns, rows[0], strict=True))["rejected_by"] == "nobody: the time ran out"
    assert any(event.how == "nobody decided: rejected" for event in timeline(execution.pk))


def test_a_model_that_is_out_of_reach_is_asked_again(start: Callable[..., Workers]) -> None:
    made = incident()
    start(fix_failures=2)
    asked(made)
    fix = StepOutput.objects.get(execution_id=made.execution_id, step_id="generate_fix#1")
    assert fix.attempts == 3 == len(starts(made, "generate_fix"))
    assert len(starts(made, "find_root_cause")) == 1 == Fix.objects.count()


def test_a_model_that_stays_out_of_reach_fails_the_execution_by_name(start: Callable[..., Workers]) -> None:
    made = incident()
    start(fix_failures=99)
    execution = ended(made)
    assert execution.status == "failed"
    assert "generate_fix" in execution.last_error and "The model gave no answer (4)" in execution.last_error


def test_a_worker_killed_while_the_execution_waits_changes_nothing(
    start: Callable[..., Workers], approver: Any
) -> None:
    made = incident()
    workers = start()
    wait = asked(made)
    before, rows = records(made), Execution.objects.filter(pk=made.execution_id).values().get()
    (pid,) = workers.child_pids
    assert starts(made, "generate_fix")[0].pid == pid
    os.kill(pid, signal.SIGKILL)
    workers.wait_ready(2)
    assert Execution.objects.filter(pk=made.execution_id).values().get() == rows
    assert decide(wait.pk, approved=True, actor=approver).done
    assert ended(made).crash_count == 0
    assert {name: row for name, row in records(made).items() if name in before} == before
    assert_one_pull_request(made)


def test_a_worker_killed_inside_a_step_repeats_that_step_alone(
    start: Callable[..., Workers], approver: Any
) -> None:
    """Between the effect and its record: the branch is there, and nothing tells the engine so."""
    made = incident()
    start(2, step_delay=1.5)
    wait = asked(made)
    assert decide(wait.pk, approved=True, actor=approver).done
    branch, repository = branch_of(made.execution_id), Repository(made.repository)
    commit = wait_until(lambda: repository.commit_of(branch), 60, "the branch")
    (first,) = starts(made, "open_pull_request")
    os.kill(first.pid, signal.SIGKILL)
    before = records(made)
    assert "open_pull_request#1" not in before and not PullRequest.objects.exists()

    execution = ended(made)

    assert execution.status == "succeeded", execution.last_error
    assert assert_one_pull_request(made).commit == commit
    first, second = starts(made, "open_pull_request")
    assert first.pid != second.pid
    after = records(made)
    assert {name: row for name, row in after.items() if name in before} == before
    assert set(after) - set(before) == {"open_pull_request#1"}
    assert all(len(starts(made, step)) == 1 for step in ("find_root_cause", "generate_fix", "list_runbooks"))
    (lost,) = [entry for entry in execution.errors if entry["kind"] == "lost"]
    assert Worker.objects.get(name=lost["worker"]).pid == first.pid
    told = [event for event in timeline(execution.pk) if event.how == "worker lost"]
    assert [event.what for event in told] == [lost["worker"]]


def test_a_fix_that_no_longer_applies_fails_with_the_reason(
    start: Callable[..., Workers], approver: Any
) -> None:
    made = incident(outcome="timed_out")
    start()
    wait = asked(made)
    Fix.objects.update(patch=Fix.objects.get().patch.replace("timeout_minutes = 10", "timeout_minutes = 11"))
    assert decide(wait.pk, approved=True, actor=approver).done
    execution = ended(made)
    assert execution.status == "failed"
    assert "main has changed since the fix was written" in execution.last_error
    assert PIPELINE in execution.last_error and not PullRequest.objects.exists()
    assert len(starts(made, "open_pull_request")) == 1
