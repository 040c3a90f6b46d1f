"""The workflow of this app: from a failed check to a pull request that a person has approved."""

from datetime import timedelta
from typing import Any

from example_project.incidents import steps
from pgjobs import Backoff, workflow


@workflow(name="incidents.respond", version=1)
def respond(
    ctx: Any,
    incident_id: int,
    approval_seconds: float = 7200.0,
    cool_down_seconds: float = 300.0,
    four_eyes: bool = False,
) -> dict[str, Any]:
    """Find the cause, write a fix, read the runbooks, ask a person, wait, apply.

    The body runs again from its start after every wait; steps that are recorded answer from their records. It
    therefore reads no table, clock or setting of its own: whatever it decides on comes from a step or its input.
    """
    finding = ctx.step(steps.find_root_cause, incident_id)
    fix = ctx.step(steps.generate_fix, incident_id, finding, retry=Backoff(base=0.5, attempts=4), timeout=60)
    runbooks = ctx.step(steps.list_runbooks, incident_id)
    pages = None
    if runbooks:
        # A runbook that cannot be read is no reason to leave the incident alone.
        read = ctx.gather([steps.reading(*each) for each in runbooks], tolerated_failures=len(runbooks))
        pages = sum(result["pages"] for result in read if result)
    decision = ctx.approval(
        "apply fix",
        permission="incidents.approve_fix",
        timeout=timedelta(seconds=approval_seconds),
        on_timeout="reject",
        four_eyes=four_eyes,
        context={"cause": finding["summary"], "fix": fix["summary"], "patch": fix["patch"], "pages": pages},
    )
    if not decision.approved:
        return {"applied": False, "by": decision.by, "reason": decision.reason}
    ctx.sleep("cool down", timedelta(seconds=cool_down_seconds))
    change = ctx.atomic("record change", steps.record_change, fix["fix"], decision)
    # ctx is no part of a step's identity, which its other arguments are: it can be handed on.
    request = ctx.step(steps.open_pull_request, ctx, incident_id, change, retry=Backoff(base=1, attempts=5))
    return {"applied": True, "pull_request": request}
