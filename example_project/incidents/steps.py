"""What the workflow does, step by step. Each may run more than once, and leaves the same behind each time.

A worker can die between a step's effect and its record; then the step runs again. So a step looks for what an
earlier run left (get_or_create under a unique column, a branch of a known name) before it makes something new.
"""

import os
import time
from typing import Any

from example_project.documents.jobs import extract, idempotency_key
from example_project.documents.models import Document
from example_project.incidents import conf, diagnosis
from example_project.incidents.models import Change, Finding, Fix, Incident, PullRequest, StepStart
from example_project.incidents.repository import PIPELINE, GitFailed, Repository
from pgjobs import Fail
from pgjobs.queue.authoring import JobCall

STILL_SECONDS = 0.1


def find_root_cause(incident_id: int) -> dict[str, Any]:
    """Write the finding."""
    incident = _begin(incident_id, "find_root_cause")
    cause = diagnosis.cause_of(incident.kind, incident.outcome)
    summary = f"{incident.title} at {incident.commit[:10] or 'an unknown commit'}: {cause}"
    finding, _ = Finding.objects.get_or_create(
        incident=incident, defaults={"cause": cause, "summary": summary}
    )
    return {"cause": finding.cause, "summary": finding.summary}


def generate_fix(incident_id: int, finding: dict[str, Any]) -> dict[str, Any]:
    """Write the fix. Raises ModelUnavailable, which is worth a retry."""
    incident = _begin(incident_id, "generate_fix")
    asked = StepStart.objects.filter(incident=incident, step="generate_fix").count()
    if asked <= conf.fix_failures():
        raise diagnosis.ModelUnavailable(f"The model gave no answer ({asked}).")
    before = Repository(incident.repository).read(PIPELINE)
    summary, patch = diagnosis.write_patch(finding["cause"], before)
    fix, _ = Fix.objects.get_or_create(incident=incident, defaults={"summary": summary, "patch": patch})
    return {"fix": fix.pk, "summary": fix.summary, "patch": fix.patch}


def list_runbooks(incident_id: int) -> list[tuple[int, str]]:
    """Id and checksum of the attached documents. A step, since the table may say another thing at the next replay."""
    incident = _begin(incident_id, "list_runbooks")
    return list(incident.documents.order_by("pk").values_list("pk", "sha256"))


def reading(document_id: int, sha256: str) -> JobCall:
    """The job that reads a runbook, under the key of its upload: pages that have been read are not read again."""
    key = idempotency_key(Document(pk=document_id, sha256=sha256))
    return extract.using(idempotency_key=key).s(document_id=document_id)


def record_change(fix_id: int, decision: Any) -> int:
    """Enter the approved fix in the book of changes. Called in ``ctx.atomic``: the entry commits with its record."""
    change = Change.objects.create(
        fix_id=fix_id, approved_by=decision.by or "", approved_at=decision.at, reason=decision.reason
    )
    return change.pk


def open_pull_request(ctx: Any, incident_id: int, change_id: int) -> dict[str, str]:
    """Make the branch and its pull request.

    The branch is named after the execution, the same in every run of the step: it is the idempotency key towards
    git. The commit's message carries ``ctx.lease``, a value of this turn alone: it tells which run made it. A
    system that takes fencing values would be handed it to refuse a worker that lost its lease meanwhile.
    """
    incident = _begin(incident_id, "open_pull_request")
    change = Change.objects.select_related("fix").get(pk=change_id)
    branch = branch_of(ctx.execution_id)
    message = f"{change.fix.summary}\n\nApproved-By: {change.approved_by}\nLease: {ctx.lease}\n"
    try:
        commit = Repository(incident.repository).branch_with(branch, change.fix.patch, message)
    except GitFailed as error:
        if "patch does not apply" in str(error):
            raise Fail(f"main has changed since the fix was written; write a new one. {error}") from error
        raise
    _linger(ctx)
    request, _ = PullRequest.objects.get_or_create(
        change=change, defaults={"branch": branch, "commit": commit}
    )
    return {"branch": request.branch, "commit": request.commit}


def branch_of(execution_id: int) -> str:
    """The name of an execution's branch."""
    return f"incident/execution-{execution_id}"


def _begin(incident_id: int, step: str) -> Incident:
    """Note that the step has begun; committed at once. Raises Fail when the incident was deleted."""
    incident = Incident.objects.filter(pk=incident_id).first()
    if incident is None:
        raise Fail(f"Incident {incident_id} does not exist; it was deleted after its execution was started.")
    StepStart.objects.create(incident=incident, step=step, pid=os.getpid())
    return incident


def _linger(ctx: Any) -> None:
    until = time.monotonic() + conf.step_delay()
    while time.monotonic() < until and not ctx.should_stop:
        time.sleep(STILL_SECONDS)
