"""Pauses: of a queue, or of one type of job or workflow everywhere. What runs goes on; nothing new starts.

The claim itself reads the pauses, so they hold in every worker from the next claim on, and one with an end is over by
time alone. Short jobs that a worker has claimed ahead count as running.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.exceptions import InvalidOption
from pgjobs.queue import audit
from pgjobs.queue.enqueue import notify
from pgjobs.queue.models import QueuePause
from pgjobs.queue.names import unknown

logger = logging.getLogger("pgjobs.control")

QUEUE, TYPE = QueuePause.Kind.QUEUE.value, QueuePause.Kind.TYPE.value
_LONGEST = {QUEUE: 100, TYPE: 200}

# A pause that is over but still there begins anew.
_PAUSE = """
INSERT INTO pgjobs_queuepause AS pause (kind, name, reason, "by", since, until)
VALUES (%(kind)s, %(name)s, %(reason)s, %(by)s, statement_timestamp(),
        COALESCE(%(at)s::timestamptz, statement_timestamp() + make_interval(secs => %(seconds)s)))
ON CONFLICT (kind, name) DO UPDATE
SET reason = EXCLUDED.reason, "by" = EXCLUDED."by", until = EXCLUDED.until,
    since = CASE WHEN pause.until <= statement_timestamp() THEN EXCLUDED.since ELSE pause.since END
WHERE NOT %(anew)s OR pause.until <= statement_timestamp()
RETURNING since < statement_timestamp(), until, until <= statement_timestamp()"""

_RESUME = """
DELETE FROM pgjobs_queuepause WHERE kind = %(kind)s AND name = %(name)s
RETURNING "by", since, until IS NULL OR until > statement_timestamp()"""

# What somebody holds is being paused anew or resumed; waiting for it here, two who pause could wait for each other.
_FORGET = """
DELETE FROM pgjobs_queuepause WHERE id IN (
    SELECT id FROM pgjobs_queuepause WHERE until <= statement_timestamp() ORDER BY id FOR UPDATE SKIP LOCKED)"""


@dataclass(frozen=True, slots=True)
class PauseOutcome:
    """What came of a pause or a resumption."""

    kind: str
    name: str
    done: bool
    message: str
    until: dt.datetime | None = None
    """When it goes on by itself."""
    conflict: bool = False
    """Whether nothing was done because of what happened meanwhile."""
    doubt: str = ""
    """Why the name is taken for misspelt; in the message too."""

    @property
    def result(self) -> str:
        """In one word: "done", "skipped" or "conflict"."""
        return "done" if self.done else "conflict" if self.conflict else "skipped"


def pause(
    name: str,
    *,
    kind: str = QUEUE,
    actor: Any,
    reason: str,
    until: dt.datetime | dt.timedelta | None = None,
    expected: str | None = None,
) -> PauseOutcome:
    """Let nothing new of a queue start, or with ``kind="type"`` of a type of job or workflow, in whichever queue.

    It goes on by itself at ``until`` (an aware datetime, or a timedelta from now), or when it is resumed. Pausing what
    is paused sets a new reason and a new end. What is not known yet is paused too, and the message doubts the name.
    ``expected`` is the :func:`mark` of the pause that the person saw, empty
    for none: where it stands otherwise now, nothing is done. Raises :class:`InvalidOption`; a reason must be given.
    """
    _check(name, kind)
    if not reason.strip():
        raise InvalidOption("reason", reason, "say why; whoever finds it paused at night will ask.")
    at, seconds = _end(until)
    using = get_settings().database
    who = audit.Actor.of(actor)
    params = {
        "kind": kind,
        "name": name,
        "reason": codec.storable_text(reason, 2_000),
        "at": at,
        "seconds": seconds,
    }
    with transaction.atomic(using=using):
        conflict = _moved_on(name, kind, expected, using)
        by = codec.storable_text(who.name, 200)
        found = [] if conflict else rows(using, _PAUSE, {**params, "by": by, "anew": expected == ""})
        if found:
            outcome = _paused(kind, name, until, *found[0])
            doubt = "" if found[0][0] else unknown(kind, name, using=using)
            if doubt:
                outcome = replace(outcome, message=f"{outcome.message} ({doubt})", doubt=doubt)
            rows(using, _FORGET, {})
        else:
            conflict = conflict or _moved_on(name, kind, expected, using)
            outcome = PauseOutcome(kind, name, False, conflict, conflict=True)
        ends = None if outcome.until is None else outcome.until.isoformat()
        _record("pause", outcome, actor, reason, {"until": ends} if outcome.done else {})
    logger.info("%s=%s verb=pause done=%s until=%s by=%s", kind, name, outcome.done, ends, actor)
    return outcome


def _paused(
    kind: str, name: str, until: Any, again: bool, ends: dt.datetime | None, over: bool
) -> PauseOutcome:
    if over:
        raise InvalidOption("until", until, "it has passed; give a time to come, by the database's clock.")
    told = "until it is resumed" if ends is None else f"until {ends:%Y-%m-%d %H:%M:%S %Z}"
    return PauseOutcome(kind, name, True, f"{'pause changed' if again else 'paused'}, {told}", ends)


def resume(
    name: str, *, kind: str = QUEUE, actor: Any, reason: str = "", expected: str | None = None
) -> PauseOutcome:
    """End a pause now; workers are told to look. ``expected`` as in :func:`pause`. Raises :class:`InvalidOption`."""
    _check(name, kind)
    using = get_settings().database
    with transaction.atomic(using=using):
        conflict = _moved_on(name, kind, expected, using)
        found = [] if conflict else rows(using, _RESUME, {"kind": kind, "name": name})
        by, since, held = found[0] if found else ("", None, False)
        if held:
            message = f"resumed; it was paused by {by} since {since:%Y-%m-%d %H:%M:%S %Z}"
        else:
            message = conflict or _not_paused(kind, name)
        outcome = PauseOutcome(kind, name, held, message, conflict=bool(conflict))
        _record("resume", outcome, actor, reason, {})
        if held and get_settings().notify:
            notify(using=using)
    logger.info("%s=%s verb=resume done=%s by=%s", kind, name, held, actor)
    return outcome


def paused(kind: str | None = None) -> list[QueuePause]:
    """The pauses in force, by the database's clock."""
    found = QueuePause._base_manager.using(get_settings().database)
    found = found.filter(Q(until__isnull=True) | Q(until__gt=Now()))
    return list((found if kind is None else found.filter(kind=kind)).order_by("kind", "name"))


def heard_of(name: str, kind: str) -> bool:
    """Whether there is anything to show of a name: something is known of it, or it is paused and can be resumed."""
    return not unknown(kind, name) or name in {each.name for each in paused(kind)}


def mark(pause: QueuePause | None) -> str:
    """How a pause stands, as a form carries it; empty for none."""
    if pause is None:
        return ""
    parts = (pause.since, pause.until, pause.by, pause.reason)
    return hashlib.sha256(repr([str(each) for each in parts]).encode()).hexdigest()[:16]


def _not_paused(kind: str, name: str) -> str:
    others = [each.name for each in paused(kind)[:10] if each.name != name]
    return f"{kind} {name} is not paused" + (f"; paused are {', '.join(map(repr, others))}" if others else "")


def _moved_on(name: str, kind: str, expected: str | None, using: str) -> str:
    """What happened since the person looked; empty when nothing did. Locks the pause that is there."""
    if expected is None:
        return ""
    found = QueuePause._base_manager.using(using).filter(kind=kind, name=name)
    found = found.filter(Q(until__isnull=True) | Q(until__gt=Now()))
    held = found.select_for_update().first()
    if mark(held) == expected:
        return ""
    if held is None:
        return f"{kind} {name} was paused when you looked; it is no longer"
    was = "paused otherwise" if expected else "not paused"
    return f"it was {was} when you looked; it is paused by {held.by} since {held.since:%Y-%m-%d %H:%M:%S %Z}"


def _record(verb: str, outcome: PauseOutcome, actor: Any, reason: str, details: dict[str, Any]) -> None:
    audit.record(
        verb,
        target_kind=outcome.kind,
        target_ids=[outcome.name],
        actor=actor,
        reason=reason,
        done=int(outcome.done),
        skipped=int(outcome.result == "skipped"),
        refused=int(outcome.conflict),
        details={**details, "outcomes": {outcome.name: outcome.message}},
    )


def _check(name: str, kind: str) -> None:
    if kind not in _LONGEST:
        raise InvalidOption("kind", kind, f"give one of {_either(list(_LONGEST))}.")
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST[kind]:
        raise InvalidOption("name", name, f"give the name of a {kind}, 1 to {_LONGEST[kind]} characters.")
    codec.check_text(name, "name")


def _end(until: dt.datetime | dt.timedelta | None) -> tuple[dt.datetime | None, float | None]:
    """An instant, or seconds that the database adds to its own clock; neither for a pause without end."""
    if until is None:
        return None, None
    if isinstance(until, dt.timedelta):
        seconds = until.total_seconds()
        if not 0 < seconds <= 10 * 366 * 86_400:
            raise InvalidOption("until", until, "give more than nothing and at most ten years.")
        return None, seconds
    if not isinstance(until, dt.datetime) or timezone.is_naive(until):
        raise InvalidOption("until", until, "give an aware datetime, a timedelta, or None.")
    return until, None


def _either(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))
