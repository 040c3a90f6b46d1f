"""Acknowledge, mute and open again causes of failures. What is known does not shout; its dead jobs still count."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.db import DatabaseError, transaction
from django.utils import timezone

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import brief_locks, busy, rows
from pgjobs.exceptions import InvalidOption
from pgjobs.queue import audit
from pgjobs.queue.activity import CAUSE_DAYS
from pgjobs.queue.standing import ACKNOWLEDGED, MUTED, OPEN, Standing, instant, mark, standing

logger = logging.getLogger("pgjobs.control")

AT_ONCE = 100
"""Causes that one verb takes."""
_VERSIONS = 500
_FORGET_BATCH = 1_000
_LONGEST_LINK = 500

# Verbs come one after the other, so that what each compares with is what it writes to. Readers do not wait.
_ALONE = "LOCK TABLE pgjobs_acknowledgement IN SHARE ROW EXCLUSIVE MODE"

_THERE = """
SELECT named.fingerprint FROM unnest(%(fingerprints)s::text[]) AS named(fingerprint)
WHERE EXISTS (SELECT 1 FROM pgjobs_job AS t WHERE t.status IN ('dead', 'failed') AND t.discarded_at IS NULL
              AND t.fingerprint = named.fingerprint)"""

_RUNNING_VERSIONS = """
SELECT code_version FROM pgjobs_worker WHERE code_version <> ''
GROUP BY code_version ORDER BY max(started_at) DESC LIMIT %(most)s"""

_WRITE = """
INSERT INTO pgjobs_acknowledgement (fingerprint, "by", since, until, note, link, versions)
SELECT fingerprint, %(by)s, statement_timestamp(),
       COALESCE(%(at)s::timestamptz, statement_timestamp() + make_interval(secs => %(seconds)s)),
       %(note)s, %(link)s, %(versions)s::jsonb
FROM unnest(%(fingerprints)s::text[]) AS named(fingerprint)
ON CONFLICT (fingerprint) DO UPDATE
SET "by" = EXCLUDED."by", since = EXCLUDED.since, until = EXCLUDED.until, note = EXCLUDED.note,
    link = EXCLUDED.link, versions = EXCLUDED.versions
RETURNING fingerprint, until, until <= statement_timestamp()"""

_REMOVE = """
DELETE FROM pgjobs_acknowledgement
WHERE fingerprint = ANY(%(fingerprints)s::text[]) OR until <= statement_timestamp()"""

# What somebody holds is being given anew or taken back.
_FORGET = """
DELETE FROM pgjobs_acknowledgement WHERE fingerprint = ANY(ARRAY(
    SELECT known.fingerprint FROM pgjobs_acknowledgement AS known
    WHERE known.until <= statement_timestamp()
       OR known.until IS NULL AND known.since < statement_timestamp() - make_interval(days => %(days)s)
          AND NOT EXISTS (SELECT FROM pgjobs_cause AS cause WHERE cause.fingerprint = known.fingerprint
                          AND cause.seen_at > statement_timestamp() - make_interval(days => %(days)s))
          AND NOT EXISTS (SELECT FROM pgjobs_job AS t WHERE t.status IN ('dead', 'failed')
                          AND t.discarded_at IS NULL AND t.fingerprint = known.fingerprint)
    ORDER BY known.fingerprint LIMIT %(most)s FOR UPDATE OF known SKIP LOCKED))
RETURNING 1"""

Expected = Mapping[str, str]
"""By fingerprint, the :func:`mark` that the person saw; empty for an open cause. Where it differs, nothing is done."""


@dataclass(frozen=True, slots=True)
class ErrorOutcome:
    """What came of a verb for one cause."""

    fingerprint: str
    done: bool
    message: str
    state: str
    """How the cause stands now."""
    until: dt.datetime | None = None
    conflict: bool = False
    """Whether nothing was done because of what happened meanwhile."""

    @property
    def result(self) -> str:
        """In one word: "done", "skipped" or "conflict"."""
        return "done" if self.done else "conflict" if self.conflict else "skipped"


def acknowledge(
    fingerprints: Iterable[str],
    *,
    actor: Any,
    reason: str,
    link: str = "",
    expected: Expected | None = None,
) -> list[ErrorOutcome]:
    """Say that these causes are known: they are open again when they come back on another version of the code.

    ``reason`` is the note that others read, ``link`` the address of a ticket. Acknowledging what is acknowledged or
    muted replaces it. Raises :class:`InvalidOption`; a reason must be given.
    """
    names = _checked(fingerprints)
    columns = _columns(actor, reason, link, (None, None))
    return _know("acknowledge", names, columns, actor, expected)


def mute(
    fingerprints: Iterable[str],
    *,
    until: dt.datetime | dt.timedelta,
    actor: Any,
    reason: str,
    link: str = "",
    expected: Expected | None = None,
) -> list[ErrorOutcome]:
    """Do not tell of these causes before ``until`` (an aware datetime, or a timedelta from now), whatever happens.

    The rest as for :func:`acknowledge`.
    """
    names = _checked(fingerprints)
    columns = _columns(actor, reason, link, _end(until))
    return _know("mute", names, columns, actor, expected)


def unacknowledge(
    fingerprints: Iterable[str], *, actor: Any, reason: str = "", expected: Expected | None = None
) -> list[ErrorOutcome]:
    """Open these causes again, acknowledged or muted as they were. Raises :class:`InvalidOption`."""
    names, using = _checked(fingerprints), get_settings().database
    with transaction.atomic(using=using):
        known = _alone(names, using)
        outcomes = [_opened(name, known.get(name), expected) for name in names]
        rows(using, _REMOVE, {"fingerprints": [each.fingerprint for each in outcomes if each.done]})
        _record("unacknowledge", outcomes, actor, reason, {})
    return outcomes


def forget(*, using: str) -> int:
    """Remove mutes that are over, and acknowledgements of causes that are no more; how many.

    Those were given more than :data:`~pgjobs.queue.activity.CAUSE_DAYS` ago, nobody has met the error for as long, and
    no dead or failed job has it. A verb that is under way is not waited for: the next time does it.
    """
    try:
        with transaction.atomic(using=using):
            brief_locks(using)
            return len(rows(using, _FORGET, {"days": CAUSE_DAYS, "most": _FORGET_BATCH}))
    except DatabaseError as error:
        if not busy(error):
            raise
        return 0


def _opened(name: str, known: Standing | None, expected: Expected | None) -> ErrorOutcome:
    if conflict := _moved_on(name, known, expected):
        return _left(name, known, conflict, conflict=True)
    if known is None or not known.holds:
        return _left(name, None, "it is open: neither acknowledged nor muted", conflict=False)
    return ErrorOutcome(name, True, f"open again; it was {known.told()}", OPEN)


def _know(
    verb: str, names: list[str], columns: dict[str, Any], actor: Any, expected: Expected | None
) -> list[ErrorOutcome]:
    using = get_settings().database
    with transaction.atomic(using=using):
        known = _alone(names, using)
        there = {name for (name,) in rows(using, _THERE, {"fingerprints": names})}
        versions = sorted(name for (name,) in rows(using, _RUNNING_VERSIONS, {"most": _VERSIONS}))
        left = {}
        for name in names:
            if conflict := _moved_on(name, known.get(name), expected):
                left[name] = _left(name, known.get(name), conflict, conflict=True)
            elif name not in there:
                gone = "no dead or failed job has this fingerprint (any more)"
                left[name] = _left(name, known.get(name), gone, conflict=False)
        fresh = [name for name in names if name not in left]
        written = rows(using, _WRITE, {**columns, "fingerprints": fresh, "versions": json.dumps(versions)})
        done = {name: _done(name, until, over, bool(versions)) for name, until, over in written}
        outcomes = [done.get(name) or left[name] for name in names]
        ends = next((each.until.isoformat() for each in outcomes if each.done and each.until), None)
        told = {"until": ends, "link": columns["link"]}
        _record(verb, outcomes, actor, columns["note"], {name: text for name, text in told.items() if text})
    return outcomes


def _columns(
    actor: Any, reason: str, link: str, end: tuple[dt.datetime | None, float | None]
) -> dict[str, Any]:
    if not reason.strip():
        raise InvalidOption("reason", reason, "say what is known of it; whoever finds it next will ask.")
    _check_link(link)
    by = codec.storable_text(audit.Actor.of(actor).name, 200)
    return {
        "by": by,
        "note": codec.storable_text(reason, 2_000),
        "link": link,
        "at": end[0],
        "seconds": end[1],
    }


def _alone(names: list[str], using: str) -> dict[str, Standing]:
    """How they stand while no other verb runs."""
    rows(using, _ALONE, {})
    return standing(names, using=using)


def _moved_on(name: str, known: Standing | None, expected: Expected | None) -> str:
    """What happened since the person looked; empty when nothing did, or when nobody says what was seen."""
    if expected is None or name not in expected or mark(known) == expected[name]:
        return ""
    if known is None:
        return "it was acknowledged or muted when you looked; it is open"
    if not known.holds:
        return f"it was acknowledged when you looked; it came back on {known.version} and is open"
    was = "acknowledged or muted otherwise" if expected[name] else "open"
    return f"it was {was} when you looked; it is {known.told()}"


def _left(name: str, known: Standing | None, message: str, *, conflict: bool) -> ErrorOutcome:
    state, until = (known.state, known.until) if known else (OPEN, None)
    return ErrorOutcome(name, False, message, state, until, conflict=conflict)


def _done(name: str, until: dt.datetime | None, over: bool, versions: bool) -> ErrorOutcome:
    if over:
        raise InvalidOption("until", until, "it has passed; give a time to come, by the database's clock.")
    if until is not None:
        return ErrorOutcome(name, True, f"muted until {instant(until)}", MUTED, until)
    told = "acknowledged; it opens again when it happens on another version of the code"
    if not versions:
        told = "acknowledged; it does not open by itself, since workers report no version (CODE_VERSION)"
    return ErrorOutcome(name, True, told, ACKNOWLEDGED)


def _record(
    verb: str, outcomes: list[ErrorOutcome], actor: Any, reason: str, details: dict[str, Any]
) -> None:
    results = [each.result for each in outcomes]
    audit.record(
        verb,
        target_kind="error",
        target_ids=[each.fingerprint for each in outcomes],
        actor=actor,
        reason=reason,
        done=results.count("done"),
        skipped=results.count("skipped"),
        refused=results.count("conflict"),
        details={**details, "outcomes": {each.fingerprint: each.message for each in outcomes}},
    )
    for each in outcomes:
        logger.info("error=%r verb=%s done=%s by=%s", each.fingerprint, verb, each.done, actor)


def _checked(fingerprints: Iterable[str]) -> list[str]:
    if isinstance(fingerprints, str):
        raise InvalidOption("fingerprints", fingerprints, "give a list of them.")
    names = sorted(set(fingerprints))
    if not 0 < len(names) <= AT_ONCE:
        raise InvalidOption("fingerprints", f"{len(names)} of them", f"give 1 to {AT_ONCE}.")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= 40:
            raise InvalidOption("fingerprint", name, "give one of 1 to 40 characters, as the job carries it.")
        codec.check_text(name, "fingerprint")
    return names


def _check_link(link: str) -> None:
    if link and not followable(link):
        cure = (
            f"give an address with http or https, without a password, of at most {_LONGEST_LINK} characters."
        )
        raise InvalidOption("link", link, cure)


def followable(link: str) -> bool:
    """Whether a page may make a link of it. Rows that other programs write may hold anything, javascript: too."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return False
    fine = parts.scheme in ("http", "https") and bool(parts.netloc) and "@" not in parts.netloc
    return fine and len(link) <= _LONGEST_LINK and link.isprintable()


def _end(until: dt.datetime | dt.timedelta) -> tuple[dt.datetime | None, float | None]:
    """An instant, or seconds that the database adds to its own clock."""
    if isinstance(until, dt.timedelta):
        seconds = until.total_seconds()
        if not 0 < seconds <= 366 * 86_400:
            raise InvalidOption("until", until, "give more than nothing and at most a year.")
        return None, seconds
    if not isinstance(until, dt.datetime) or timezone.is_naive(until):
        raise InvalidOption("until", until, "give an aware datetime or a timedelta.")
    return until, None
