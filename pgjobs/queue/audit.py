"""The record of what operators did, tried and were refused: written in the verb's own transaction, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pgjobs.codec import storable_text
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.exceptions import InvalidOption
from pgjobs.queue.models import OperatorAction

MOST_IDS = 100
"""Targets that one row names; the rest are counted."""
PRUNE_BATCH = 1_000

_LONGEST_NAME = 200  # bytes, so that the characters fit the column
_LONGEST_REASON = 2_000


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. As text it is the name, which is what the notes on rows say."""

    name: str
    user_id: str | None = None
    """Primary key of the user, as text; None for code and shells."""
    via: str = OperatorAction.Via.API.value
    origin: str = ""
    """From where, as the face knows it: "root@host" of a shell, or an address. Goes into the details."""

    def __post_init__(self) -> None:
        if self.via not in OperatorAction.Via.values:
            raise InvalidOption("via", self.via, f"give one of {', '.join(OperatorAction.Via.values)}.")

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of(cls, who: Any, *, via: str | None = None) -> Actor:
        """An actor for ``who``: an actor, a user, or anything that has a text. ``via`` replaces the face."""
        if isinstance(who, cls):
            return who if via is None else replace(who, via=via)
        pk = getattr(who, "pk", None)
        name = who.get_username() if hasattr(who, "get_username") else str(who)
        return cls(str(name), None if pk is None else str(pk), via or OperatorAction.Via.API.value)


def record(
    verb: str,
    *,
    target_kind: str,
    target_ids: Iterable[int | str],
    actor: Any,
    reason: str = "",
    done: int = 0,
    skipped: int = 0,
    refused: int = 0,
    target_count: int | None = None,
    details: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> OperatorAction:
    """Add one row for one operation, in the caller's transaction.

    ``target_count`` is given where there are more targets than ids at hand. ``details`` are plain JSON values, and
    hold nothing secret: they are shown to whoever may see the audit.
    """
    if target_kind not in OperatorAction.Target.values:
        known = ", ".join(OperatorAction.Target.values)
        raise InvalidOption("target_kind", target_kind, f"give one of {known}.")
    ids, who = list(target_ids), Actor.of(actor)
    action = OperatorAction(
        actor=storable_text(who.name, _LONGEST_NAME),
        user_id=who.user_id,
        via=who.via,
        verb=verb,
        target_kind=target_kind,
        target_ids=ids[:MOST_IDS],
        target_count=len(ids) if target_count is None else target_count,
        reason=storable_text(reason, _LONGEST_REASON),
        done=done,
        skipped=skipped,
        refused=refused,
        details={
            **({"from": storable_text(who.origin, _LONGEST_NAME)} if who.origin else {}),
            **(details or {}),
        },
    )
    action.save(using=using or get_settings().database, force_insert=True)
    return action


def record_denied(
    verb: str,
    *,
    target_kind: str,
    target_ids: Iterable[int | str],
    actor: Any,
    permission: str,
    reason: str = "",
) -> OperatorAction:
    """Add the row of an attempt that a face has refused because ``permission`` was missing."""
    ids = list(target_ids)
    return record(
        verb,
        target_kind=target_kind,
        target_ids=ids,
        actor=actor,
        reason=reason,
        refused=max(len(ids), 1),
        details={"missing_permission": permission},
    )


def prune(*, using: str) -> int:
    """Delete up to :data:`PRUNE_BATCH` rows older than AUDIT_DAYS, the oldest first; how many went."""
    days = get_settings().audit_days
    if days is None:
        return 0
    sql = "SELECT pgjobs_prune_audit(make_interval(secs => %(seconds)s), %(batch)s)"
    ((gone,),) = rows(using, sql, {"seconds": days * 86_400.0, "batch": PRUNE_BATCH})
    return int(gone)
