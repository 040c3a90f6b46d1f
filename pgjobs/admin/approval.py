"""What the page of an approval shows: the question and its figures first, the machinery after."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.urls import reverse

from pgjobs import redaction
from pgjobs.admin import audited, marks
from pgjobs.admin.ages import in_words, moment
from pgjobs.admin.tree import tree
from pgjobs.workflows.approvals import DEFAULT_PERMISSION
from pgjobs.workflows.states import OnTimeout

_COMES_TO = {OnTimeout.REJECT: "rejected", OnTimeout.APPROVE: "approved", OnTimeout.RAISE: "a timeout"}


def content(wait: Any, site: Any, user: Any) -> dict[str, Any]:
    """Everything but the right to decide."""
    name = wait.execution.workflow_name
    shown = redaction.redacted(wait.context, workflow=name)
    hide = partial(redaction.redacted_text, workflow=name)
    simple = isinstance(shown, dict) and all(not isinstance(each, dict | list) for each in shown.values())
    return {
        "summary": [(key, str(value)) for key, value in shown.items()] if simple and shown else [],
        "context": None if wait.context is None or (simple and shown) else tree(shown),
        "facts": _facts(wait, site, user),
        "votes": [_vote(each, hide) for each in wait.votes if isinstance(each, dict)],
        "result": _result(wait),
        "reason": hide(wait.reason),
        "audit": audited.panel_of("approval", wait.pk, wait.clock, hide),
    }


def _facts(wait: Any, site: Any, user: Any) -> list[tuple[str, Any]]:
    execution: Any = f"{wait.execution_id} ({wait.execution.workflow_name})"
    if user.has_perm("pgjobs.view_execution"):
        url = reverse("admin:pgjobs_execution_change", args=[wait.execution_id], current_app=site.name)
        execution = marks.link(url, execution)
    pairs = [
        ("Asked by", execution),
        ("Key", wait.execution.key),
        ("Step", wait.step_id),
        ("Asked", moment(wait.created_at, wait.clock)),
        ("Due", moment(wait.wake_at, wait.clock) if wait.wake_at else "no deadline"),
        (
            "If nobody decides",
            _COMES_TO.get(wait.on_timeout, wait.on_timeout) if wait.wake_at else "it waits on",
        ),
        ("Who may decide", who_may(wait)),
        ("Votes needed", str(wait.quorum) if wait.quorum > 1 else ""),
        ("Four eyes", "whoever started the execution may not decide" if wait.four_eyes else ""),
        ("Bypassed", "decided by a superuser who was not asked" if wait.bypassed else ""),
        ("Waited", in_words((wait.resolved_at or wait.clock) - wait.created_at)),
    ]
    return [(label, value) for label, value in pairs if value not in (None, "")]


def who_may(wait: Any) -> str:
    """Permission, groups and users."""
    named = [f"permission {wait.permission}"] if wait.permission else []
    named += [f"group {group}" for group in wait.groups] + [f"user {user}" for user in wait.users]
    return ", ".join(named) or f"permission {DEFAULT_PERMISSION}"


def has_voted(user: Any, wait: Any) -> bool:
    """Whether the user's say is in already."""
    return any(isinstance(vote, dict) and vote.get("user") == str(user.pk) for vote in wait.votes)


def _vote(vote: dict[str, Any], hide: audited.Hide) -> str:
    word = "approved" if vote.get("approved") else "rejected"
    given = vote.get("reason")
    reason = f": {hide(str(given))}" if given else ""
    return f"{vote.get('by', '?')} {word} at {vote.get('at', '?')}{reason}"


def _result(wait: Any) -> str:
    if wait.resolved_at is None:
        return ""
    resolution = wait.resolution if isinstance(wait.resolution, dict) else {}
    if resolution.get("cancelled"):
        return "The execution was cancelled before this was decided."
    word = {True: "Approved", False: "Rejected", None: "Timed out"}[wait.approved]
    return f"{word} by {wait.decided_by}." if wait.decided_by else f"{word}: nobody decided in time."
