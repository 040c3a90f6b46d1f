"""Who may do what: each verb with the permission it needs and the states it applies to.

One table for pages, for the groups that ``pgjobs_roles`` makes, and for the test that tries every person on every verb.
Checked where the verb is called; verbs themselves ask nobody, since code and shells have all rights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgjobs.queue.models import OperatorAction
from pgjobs.queue.standing import ACKNOWLEDGED, MUTED
from pgjobs.queue.states import CANCELLABLE, DISCARDABLE, RELEASABLE, RETRYABLE, JobStatus

_T = OperatorAction.Target


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind of target."""

    target: str
    verb: str
    permission: str
    """In full, as ``user.has_perm`` takes it."""
    states: frozenset[str] = frozenset()
    """From where it applies; empty when the target has no states, or in all of them."""
    irreversible: bool = False
    """Whether a person is asked once more."""


def _right(target: _T, verb: str, codename: str, *states: str, irreversible: bool = False) -> Right:
    return Right(target.value, verb, f"pgjobs.{codename}", frozenset(states), irreversible)


_LIVE = ("enqueued", "running", "waiting", "paused")

RIGHTS: tuple[Right, ...] = (
    _right(_T.JOB, "retry", "retry_job", *RETRYABLE),
    _right(_T.JOB, "cancel", "cancel_job", *CANCELLABLE, irreversible=True),
    _right(_T.JOB, "run_now", "reschedule_job", JobStatus.PENDING),
    _right(_T.JOB, "release", "release_job", *RELEASABLE, irreversible=True),
    _right(_T.JOB, "discard", "discard_job", *DISCARDABLE),
    _right(_T.JOB, "restore", "discard_job", *DISCARDABLE),
    _right(_T.JOB, "edit_copy", "edit_payload", *RETRYABLE),
    _right(_T.JOB, "reveal", "view_payload"),
    _right(_T.QUEUE, "pause", "pause_queue"),
    _right(_T.QUEUE, "resume", "pause_queue"),
    _right(_T.TYPE, "pause", "pause_queue"),
    _right(_T.TYPE, "resume", "pause_queue"),
    _right(_T.ERROR, "acknowledge", "acknowledge_error"),
    _right(_T.ERROR, "mute", "acknowledge_error"),
    _right(_T.ERROR, "unacknowledge", "acknowledge_error", ACKNOWLEDGED, MUTED),
    _right(_T.EXECUTION, "resume", "resume_execution", "paused"),
    _right(_T.EXECUTION, "retry", "resume_execution", "failed"),
    _right(_T.EXECUTION, "pause", "resume_execution", "enqueued", "waiting"),
    _right(_T.EXECUTION, "cancel", "cancel_execution", *_LIVE, irreversible=True),
    _right(_T.EXECUTION, "fork", "fork_execution"),
    _right(_T.EXECUTION, "signal", "signal_execution", *_LIVE),
    # Where an approval names nobody of its own; who may decide is asked again at the decision.
    _right(_T.APPROVAL, "decide", "decide_wait", irreversible=True),
    # Starting one needs the permission of the verb that it carries besides.
    _right(_T.BULK, "start", "bulk_job", "previewed", irreversible=True),
    _right(_T.BULK, "pause", "bulk_job", "running"),
    _right(_T.BULK, "resume", "bulk_job", "paused"),
    _right(_T.BULK, "release_canary", "bulk_job", "waiting"),
    _right(_T.BULK, "stop", "bulk_job", "previewed", "running", "waiting", "paused", irreversible=True),
)

_BY_NAME = {(each.target, each.verb): each for each in RIGHTS}

OPERATOR = (
    "retry_job",
    "cancel_job",
    "reschedule_job",
    "release_job",
    "discard_job",
    "pause_queue",
    "acknowledge_error",
    "resume_execution",
    "signal_execution",
)
"""What the group of operators may do beside looking; administrators may do all."""


def right(target: str, verb: str) -> Right:
    """The row of the table. Raises KeyError for a verb that is not in it."""
    return _BY_NAME[target, verb]


def may(user: Any, target: str, verb: str) -> bool:
    """Whether ``user`` has the permission that the verb needs."""
    return bool(user.has_perm(right(target, verb).permission))
