"""Approvals: who may decide, and the one function that decides. Admin, command and API all call it."""

from __future__ import annotations

import datetime as dt
import json
import logging
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db import router, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.queue import audit
from pgjobs.redaction import redacted_text
from pgjobs.workflows.expected import Seen, difference
from pgjobs.workflows.models import Wait
from pgjobs.workflows.states import TERMINAL, OnTimeout, WaitKind
from pgjobs.workflows.waits import lock_executions, resolve, wake

logger = logging.getLogger("pgjobs.approvals")

DEFAULT_PERMISSION = "pgjobs.decide_wait"
"""Needed where an approval names nobody of its own."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What came of a decision. ``done`` is False when it changed nothing; ``message`` says why, for people."""

    done: bool
    message: str
    wait_id: int


REJECTED = """
SELECT wait.execution_id, execution.workflow_name, execution.key, wait.step_id, wait.name AS title,
       wait.context, wait.decided_by, wait.reason, wait.resolved_at
FROM pgjobs_wait AS wait JOIN pgjobs_execution AS execution ON execution.id = wait.execution_id
WHERE wait.kind = 'approval' AND wait.approved IS FALSE AND wait.resolved_at IS NOT NULL
UNION ALL
SELECT archived.id, archived.workflow_name, archived.key, wait ->> 'step_id', wait ->> 'name',
       wait -> 'context', wait ->> 'decided_by', wait ->> 'reason', (wait ->> 'resolved_at')::timestamptz
FROM pgjobs_archivedexecution AS archived, jsonb_array_elements(archived.story -> 'waits') AS wait
WHERE wait ->> 'kind' = 'approval' AND wait ->> 'approved' = 'false'
ORDER BY resolved_at"""
"""Which fixes were rejected, at which step, by whom, and why. Nobody (an empty text): the time ran out."""


def decide(
    wait_id: int,
    *,
    approved: bool,
    actor: Any,
    reason: str | None = "",
    data: Any = None,
    shown_hash: str | None = None,
    expected: Seen | None = None,
    via: str | None = None,
) -> Decision:
    """Give ``actor``'s decision on an approval, in the caller's transaction; wakes the execution once it is decided.

    ``actor`` is a user, whose right is read afresh here. ``shown_hash`` is the ``context_hash`` of what the user
    saw, ``expected`` status and attempt_count of the execution then. A decision that comes too late, second, or to
    something else than was seen changes nothing and says so. A superuser who was not asked may decide; the wait is
    marked ``bypassed``. ``via`` is the face it came through, for the audit. Raises :class:`NotStorable` for a reason
    or data that PostgreSQL cannot hold.
    """
    settings = get_settings()
    given = codec.dumps(
        {"reason": reason or "", "data": data}, label="payload", max_bytes=settings.max_payload_bytes
    )
    using = settings.database
    with transaction.atomic(using=using):
        wait, refused = _locked(wait_id, using)
        if wait is None:
            return Decision(False, refused, wait_id)
        ((now,),) = rows(using, "SELECT clock_timestamp()", {})
        user = _as_stored(actor)
        refused = (
            _no_right(user, wait)
            or _too_late(wait, now)
            or _has_voted(user, wait)
            or _shown_another(shown_hash, wait)
            or difference(expected, wait.execution.status, wait.execution.attempt_count)
        )
        message = "" if refused else _vote(wait, user, bool(approved), now, json.loads(given), using)
        who = audit.Actor.of(actor, via=via)
        _record(wait, approved, refused or message, done=not refused, actor=who, reason=reason or "")
    logger.info("wait=%s approved=%s done=%s by=%s", wait_id, approved, not refused, actor)
    return Decision(not refused, refused or message, wait_id)


def _record(wait: Wait, approved: bool, told: str, *, done: bool, actor: Any, reason: str) -> None:
    details = {"execution": wait.execution_id, "step": wait.step_id, "approved": bool(approved), "told": told}
    audit.record(
        "decide",
        target_kind="approval",
        target_ids=[wait.pk],
        actor=actor,
        reason=reason,
        done=int(done),
        refused=int(not done),
        details=details,
    )


def reason_missing(approved: bool, reason: str) -> str:
    """What a decision by hand lacks: whoever rejects says why, since the workflow and its people go on from that.

    Asked by the admin and by ``pgjobs_approve``; :func:`decide` leaves it to its caller.
    """
    return "" if approved or reason.strip() else "Say why you reject."


def may_decide(user: Any, wait: Wait) -> tuple[bool, str]:
    """Whether ``user`` has a say in this approval, and if not, why. Says nothing of whether it is still open.

    Where four eyes were asked for and nobody is recorded as the starter, a yes says so too.
    """
    why = _no_right(user, wait) or _has_voted(user, wait)
    return not why, why or _unchecked(wait)


def pending_for(user: Any) -> QuerySet[Wait]:
    """The open approvals on which ``user`` has a say and has not had it, the oldest first.

    Permissions count here as ``user.get_all_permissions()`` lists them; :func:`decide` asks ``has_perm``.
    """
    found = Wait._base_manager.using(get_settings().database).select_related("execution")
    if user is None or user.pk is None or not user.is_active:
        return found.none()
    pk = str(user.pk)
    found = found.filter(
        Q(wake_at__isnull=True) | Q(wake_at__gt=Now()), kind=WaitKind.APPROVAL, resolved_at__isnull=True
    )
    found = found.exclude(
        execution__status__in=TERMINAL
    )  # failed at a change of its code: retry it, then decide
    found = found.exclude(four_eyes=True, execution__started_by=pk).exclude(votes__contains=[{"user": pk}])
    return found.filter(_addressed_to(user)).order_by("created_at", "id")


def _addressed_to(user: Any) -> Q:
    if user.is_superuser:
        return Q()
    permissions = user.get_all_permissions()
    named = Q(permission__in=[name for name in permissions if name])
    named |= Q(users__contains=[str(user.pk)])
    groups = list(user.groups.values_list("name", flat=True))
    if groups:
        named |= Q(groups__has_any_keys=groups)
    if DEFAULT_PERMISSION in permissions:
        named |= Q(permission="", groups=[], users=[])
    return named


def _locked(wait_id: int, using: str) -> tuple[Wait | None, str]:
    """The approval with its execution's row and its own locked, or why there is none."""
    waits = Wait._base_manager.using(using)
    execution_id = waits.filter(pk=wait_id).values_list("execution_id", flat=True).first()
    if execution_id is None:
        return None, f"there is no approval {wait_id}"
    lock_executions([execution_id], using=using)
    wait = waits.filter(pk=wait_id).select_related("execution").select_for_update(of=("self",)).first()
    if wait is None:
        return None, f"there is no approval {wait_id}"
    if wait.kind != WaitKind.APPROVAL:
        return None, f"wait {wait_id} is a {wait.kind}, which nobody decides"
    return wait, ""


def _as_stored(actor: Any) -> Any:
    """The user as the database has it now: rights may have been taken away since ``actor`` was loaded."""
    model = get_user_model()
    pk = getattr(actor, "pk", None)
    if pk is None:
        return None
    return model._base_manager.using(router.db_for_write(model)).filter(pk=pk).first()


def _no_right(user: Any, wait: Wait) -> str:
    """Why ``user`` may not decide; empty when nothing stands against it."""
    if user is None or user.pk is None:
        return "only a known user can decide"
    if not user.is_active:
        return f"the account of {user.get_username()} is not active"
    if wait.four_eyes and wait.execution.started_by == str(user.pk):
        return f"{user.get_username()} started the execution, and this needs another person (four eyes)"
    permission = _permission(wait)
    if user.is_superuser or (permission and user.has_perm(permission)) or _is_named(user, wait):
        return ""
    return f"{user.get_username()} may not decide this; it needs {_needed(wait, permission)}"


def _permission(wait: Wait) -> str:
    return wait.permission if wait.permission or wait.groups or wait.users else DEFAULT_PERMISSION


def _is_named(user: Any, wait: Wait) -> bool:
    return str(user.pk) in wait.users or user.groups.filter(name__in=wait.groups).exists()


def _bypasses(user: Any, wait: Wait) -> bool:
    """Whether being a superuser is all that lets ``user`` decide: a superuser has every permission."""
    if not user.is_superuser or _is_named(user, wait):
        return False
    app_label, _, codename = _permission(wait).partition(".")
    given = {"codename": codename, "content_type__app_label": app_label}
    by_group = user.groups.filter(**{f"permissions__{column}": value for column, value in given.items()})
    return not (codename and (user.user_permissions.filter(**given).exists() or by_group.exists()))


def _unchecked(wait: Wait) -> str:
    """What could not be asked of a decider; empty when everything was."""
    return "starter unknown: four eyes could not be checked" if wait.starter_unknown else ""


def _needed(wait: Wait, permission: str) -> str:
    ways = [f"the permission {permission}"] if permission else []
    if wait.groups:
        ways.append(f"membership in {', '.join(map(str, wait.groups))}")
    if wait.users:
        ways.append("to be named in it")
    return " or ".join(ways)


def _has_voted(user: Any, wait: Wait) -> str:
    pk = str(user.pk)
    for vote in wait.votes:
        if vote.get("user") == pk:
            what = "approved" if vote["approved"] else "rejected"
            return f"{user.get_username()} has {what} it already, at {vote['at']}; a user votes once"
    return ""


def _too_late(wait: Wait, now: dt.datetime) -> str:
    """How it was decided before; empty while it is open."""
    if wait.resolved_at is not None:
        at = f"{wait.resolved_at:%Y-%m-%d %H:%M:%S %Z}"
        if (wait.resolution or {}).get("cancelled"):
            return f"the execution was cancelled at {at}, before this was decided"
        if (wait.resolution or {}).get("timeout"):
            came_to = {True: "approved", False: "rejected", None: "a timeout"}[wait.approved]
            return f"nobody decided in time; it came to {came_to} at {at}"
        what = "approved" if wait.approved else "rejected"
        told = f": {redacted_text(wait.reason, workflow=wait.execution.workflow_name)}" if wait.reason else ""
        return f"it was {what} before, by {wait.decided_by} at {at}{told}"
    if wait.execution.status in TERMINAL:
        return f"execution {wait.execution_id} has ended ({wait.execution.status})"
    if wait.wake_at is not None and wait.wake_at <= now:
        comes_to = {OnTimeout.APPROVE: "approved", OnTimeout.RAISE: "a timeout"}.get(
            OnTimeout(wait.on_timeout), "rejected"
        )
        return f"the time to decide ended at {wait.wake_at:%Y-%m-%d %H:%M:%S %Z}; undecided means {comes_to}"
    return ""


def _shown_another(shown_hash: str | None, wait: Wait) -> str:
    if shown_hash is None or shown_hash == wait.context_hash:
        return ""
    return "what you saw is not what is asked; look at it again, then decide"


def _vote(wait: Wait, user: Any, approved: bool, now: dt.datetime, given: dict[str, Any], using: str) -> str:
    """Write the vote; resolve and wake when it is the deciding one."""
    by, bypass = user.get_username()[:200], _bypasses(user, wait)
    vote = {"by": by, "user": str(user.pk), "approved": approved, "at": now.isoformat(), **given}
    if bypass:
        vote["bypass"] = True
    told = [*(["a superuser, who was not asked"] if bypass else []), *filter(None, [_unchecked(wait)])]
    remarks = f" ({'; '.join(told)})" if told else ""
    votes = [*wait.votes, vote]
    marks: dict[str, Any] = {"votes": votes, "bypassed": wait.bypassed or bypass}
    count = sum(bool(earlier["approved"]) for earlier in votes)
    if approved and count < wait.quorum:
        Wait._base_manager.using(using).filter(pk=wait.pk, resolved_at__isnull=True).update(**marks)
        return f"approval {count} of {wait.quorum} by {by}{remarks}"
    resolution = {
        "approved": approved,
        "by": by,
        "at": vote["at"],
        "reason": given["reason"],
        "data": given["data"],
        "timeout": False,
    }
    resolve(
        wait.pk,
        resolution,
        using=using,
        approved=approved,
        decided_by=by,
        reason=given["reason"],
        **marks,
    )
    wake([(wait.execution_id, wait.pk)], using=using)
    return f"{'approved' if approved else 'rejected'} by {by}{remarks}"
