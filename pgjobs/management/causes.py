"""Causes of failures as ``pgjobs_errors`` prints them, for people and for programs."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pgjobs.health.errorgroup import WAITING, GroupDetail
from pgjobs.health.errors import JOBS_COUNTED, ErrorGroup, ErrorGroups
from pgjobs.health.phrases import counted, many
from pgjobs.management.screen import clean
from pgjobs.queue.acknowledging import ErrorOutcome
from pgjobs.queue.standing import OPEN, Standing
from pgjobs.redaction import redacted_text

_TRACE = 20  # lines of a traceback, its end


def line(group: ErrorGroup, found: ErrorGroups) -> str:
    """One cause on a line."""
    name = group.fingerprint[:12] or "none"
    more = "+" if found.last_hour_is_cut and group.last_hour else ""
    new = " new" if group.is_new(found.deployed) else ""
    first = f"first {at_of(group.first_seen)}" + (f" on {group.first_version}" if group.first_version else "")
    state = "" if group.standing is None else f"  {known_of(group.standing)}"
    return (
        f"{name}  {group.error_class or 'error'} in {group.job_type} [{group.queue}]: {clean(group.message)[:100]}  "
        f"{many(group.jobs, 'job', JOBS_COUNTED)}, {group.last_hour}{more} in the last hour, {first}{new}, "
        f"last {at_of(group.last_seen)}{state}"
    )


def lines_of(group: GroupDetail) -> list[str]:
    """One cause from near."""
    retrying = f"{'at least ' if group.retrying_is_cut else ''}{group.retrying} retrying"
    if group.retrying_is_cut:
        retrying += f" (of the first {WAITING} that wait in {group.queue})"
    told = [
        f"{group.error_class or 'error'} in {group.job_type} [{group.queue}]: {clean(group.message)[:300]}",
        f"  fingerprint {group.fingerprint or 'none'}",
        f"  {counted(group.jobs, JOBS_COUNTED)} dead or failed, {retrying}",
        f"  first seen {at_of(group.first_seen)} on version {group.first_version or 'unknown'}",
        f"  last seen {at_of(group.last_seen)}",
        f"  {known_of(group.standing)}",
    ]
    for trait, values in group.shared.items():
        shares = ", ".join(f"{value} {count}" for value, count in values)
        told.append(f"  the newest {group.shared_of} share: {trait} {shares}")
    newest, oldest = (", ".join(map(str, ids)) for ids in (group.newest_ids, group.oldest_ids))
    told.append(f"  newest {newest}; oldest {oldest}")
    trace = str(group.sample.get("traceback") or "").splitlines()[-_TRACE:]
    return told + [f"    {each}" for each in trace]


def known_of(standing: Standing | None) -> str:
    """How it stands, in words."""
    if standing is None:
        return OPEN
    note = redacted_text(clean(standing.note))
    link = f" {redacted_text(standing.link)}" if standing.link else ""
    if standing.holds:
        return f"{standing.told()}: {note}{link}"
    return f"open: it came back on {standing.version}; it was {standing.told()}: {note}{link}"


def at_of(at: dt.datetime | None) -> str:
    """An instant, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S %Z}" if at else "unknown"


def _iso(at: dt.datetime | None) -> str | None:
    return at.isoformat() if at else None


def outcome_dict(each: ErrorOutcome) -> dict[str, Any]:
    """What came of a verb, for programs."""
    return {
        "fingerprint": each.fingerprint,
        "result": each.result,
        "message": each.message,
        "state": each.state,
        "until": _iso(each.until),
    }


def group_dict(group: ErrorGroup, found: ErrorGroups) -> dict[str, Any]:
    """A cause of the list, for programs."""
    return {
        **_common(group),
        "jobs": min(group.jobs, JOBS_COUNTED),
        "more": group.jobs > JOBS_COUNTED,
        "last_hour": group.last_hour,
        "last_hour_more": found.last_hour_is_cut,
        "hours": group.hours,
        "new": group.is_new(found.deployed),
    }


def detail_dict(group: GroupDetail) -> dict[str, Any]:
    """One cause from near, for programs."""
    return {
        **_common(group),
        "jobs": min(group.jobs, JOBS_COUNTED),
        "more": group.jobs > JOBS_COUNTED,
        "retrying": group.retrying,
        "retrying_more": group.retrying_is_cut,
        "hours": group.hours,
        "shared": group.shared,
        "shared_of": group.shared_of,
        "newest_ids": group.newest_ids,
        "oldest_ids": group.oldest_ids,
        "sample": group.sample,
        "others": [
            {"fingerprint": name, "error_class": error, "last_seen": _iso(at)}
            for name, error, at in group.siblings
        ],
    }


def _common(group: ErrorGroup | GroupDetail) -> dict[str, Any]:
    known = group.standing
    return {
        "fingerprint": group.fingerprint,
        "error_class": group.error_class,
        "job_type": group.job_type,
        "queue": group.queue,
        "message": group.message,
        "first_seen": _iso(group.first_seen),
        "first_version": group.first_version,
        "last_seen": _iso(group.last_seen),
        "state": group.state,
        "standing": None
        if known is None
        else {
            "by": known.by,
            "since": _iso(known.since),
            "until": _iso(known.until),
            "note": redacted_text(known.note),
            "link": redacted_text(known.link),
            "came_back_on": known.version,
            "came_back_at": _iso(known.back_at),
        },
    }
