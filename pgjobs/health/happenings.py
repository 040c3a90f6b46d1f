"""What just happened, in order: the record of activity, for the page and for the command."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.health.reading import Reader
from pgjobs.queue.models import OperatorAction
from pgjobs.redaction import redacted_texts

SHOWN = 50
LOOKED = 2_000
"""Rows that are looked through for two things at once, or for a target; any other thing alone has its index."""
TARGETS = ("worker", *OperatorAction.Target.values)
"""Kinds of targets."""

_NAMED = ("kind", "queue", "job_type", "workflow")
_COLUMNS = (
    "id, at, kind, queue, job_type, workflow, actor, target_kind, target_id, fingerprint, details::text"
)

# Rows ahead of time are ends of pauses that are to come. Key-set order: (at, id).
_BOUNDS = """at <= statement_timestamp()
  AND (%(since)s::timestamptz IS NULL OR at >= %(since)s::timestamptz)
  AND (%(since_seconds)s::float8 IS NULL
       OR at >= statement_timestamp() - make_interval(secs => %(since_seconds)s::float8))
  AND (%(before)s::timestamptz IS NULL OR at < %(before)s::timestamptz)
  AND (%(before_seconds)s::float8 IS NULL
       OR at < statement_timestamp() - make_interval(secs => %(before_seconds)s::float8))"""

_FEED = f"""
WITH looked AS MATERIALIZED (
    SELECT {_COLUMNS} FROM pgjobs_activity WHERE {_BOUNDS}{{among}}
    ORDER BY at DESC, id DESC LIMIT %(looked)s)
SELECT statement_timestamp(), edge.rows, edge.at, edge.id, found.*
FROM (SELECT count(*) OVER () AS rows, at, id FROM looked ORDER BY at, id LIMIT 1) AS edge
LEFT JOIN LATERAL (SELECT * FROM looked WHERE true{{those}}
                   ORDER BY at DESC, id DESC LIMIT %(most)s) AS found ON true
ORDER BY found.at DESC, found.id DESC"""  # noqa: S608 - names of columns


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows. Empty text is no condition; a timedelta is so long before now, by the database's clock."""

    kind: str = ""
    queue: str = ""
    job_type: str = ""
    workflow: str = ""
    since: dt.datetime | dt.timedelta | None = None
    before: dt.datetime | dt.timedelta | None = None
    target: str = ""
    """What it was done or happened to: "worker:host.1.abc", "execution:12"."""

    @property
    def columns(self) -> dict[str, str]:
        """The conditions, by column."""
        found = {name: value for name in _NAMED if (value := getattr(self, name))}
        if self.target:
            found["target_kind"], _, found["target_id"] = self.target.partition(":")
        return found

    @property
    def scattered(self) -> bool:
        """Whether no index has all of what is wanted."""
        return len(self.columns) > 1


Place = tuple[dt.datetime, int]
"""Where a row stands in the order."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened."""

    id: int
    at: dt.datetime
    kind: str
    queue: str
    job_type: str
    workflow: str
    actor: str
    target_kind: str
    target_id: str
    fingerprint: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def jobs(self) -> list[int]:
        """Ids of jobs that it is about: the first few."""
        if self.kind == "lease_reclaimed" and self.details.get("label") != "job":
            return []
        given = self.details.get("ids")
        if isinstance(given, list):
            return [pk for pk in given if isinstance(pk, int)]
        return [int(self.target_id)] if self.target_kind == "job" and self.target_id.isdecimal() else []

    @property
    def executions(self) -> list[int]:
        """Ids of executions that it is about."""
        if self.kind == "lease_reclaimed" and self.details.get("label") == "execution":
            return [pk for pk in self.details.get("ids") or () if isinstance(pk, int)]
        return [int(self.target_id)] if self.target_kind == "execution" and self.target_id.isdecimal() else []

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        names = ("id", *_NAMED, "actor", "target_kind", "target_id", "fingerprint", "details")
        told = {name: getattr(self, name) for name in names}
        return {**told, "at": self.at.isoformat(), "text": sentence(self)}


@dataclass(frozen=True, slots=True)
class Feed:
    """Rows, the latest first."""

    clock: dt.datetime
    rows: list[Happening]
    older: Place | None
    """Where to go on; None when there is nothing further."""
    looked_back_to: dt.datetime | None
    """How far was looked where not everything was."""


def feed(
    wanted: Wanted | None = None,
    *,
    below: Place | None = None,
    after: Place | None = None,
    most: int = SHOWN,
    using: str | None = None,
) -> Feed:
    """What happened, the latest first: before ``below``, after ``after``. Raises what the database raises."""
    wanted = wanted or Wanted()
    sql, params = _question(wanted, below, after, most)
    with Reader(using or get_settings().database) as reader:
        found = reader.ask(sql, **params)
        if not found:
            ((clock,),) = reader.ask("SELECT statement_timestamp()")
            return Feed(clock, [], None, None)
    return _answer(found, most, scattered=wanted.scattered)


def _question(
    wanted: Wanted, below: Place | None, after: Place | None, most: int
) -> tuple[str, dict[str, Any]]:
    """One thing is looked for in its index; more, or a target, in the newest rows of all."""
    columns, scattered = wanted.columns, wanted.scattered
    those = "".join(f" AND {name} = %({name})s" for name in columns)
    between, places = _between(below, after)
    sql = _FEED.format(among=between + ("" if scattered else those), those=those if scattered else "")
    looked = LOOKED if scattered else most + 1
    return sql, {**columns, **_times(wanted), **places, "looked": looked, "most": most + 1}


def _between(below: Place | None, after: Place | None) -> tuple[str, dict[str, Any]]:
    conditions = ""
    places: dict[str, Any] = {}
    if below:
        conditions += " AND (at, id) < (%(at)s::timestamptz, %(id)s)"
        places |= {"at": below[0], "id": below[1]}
    if after:
        conditions += " AND (at, id) > (%(after)s::timestamptz, %(after_id)s)"
        places |= {"after": after[0], "after_id": after[1]}
    return conditions, places


def _answer(found: list[tuple[Any, ...]], most: int, *, scattered: bool) -> Feed:
    """Rows, with the place of the oldest of them, or of the oldest row that was looked at where that was the end."""
    clock, looked, edge_at, edge_id = found[0][:4]
    rows = [_happening(row[4:]) for row in found if row[4] is not None]
    if len(rows) > most:
        return Feed(clock, rows[:most], (rows[most - 1].at, rows[most - 1].id), None)
    cut = scattered and looked >= LOOKED
    return Feed(clock, rows, (edge_at, edge_id) if cut else None, edge_at if cut else None)


def _times(wanted: Wanted) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for name, value in (("since", wanted.since), ("before", wanted.before)):
        ago = isinstance(value, dt.timedelta)
        params[name] = None if ago else value
        params[f"{name}_seconds"] = value.total_seconds() if isinstance(value, dt.timedelta) else None
    return params


def _happening(row: tuple[Any, ...]) -> Happening:
    """What people typed is in the details too: without its secrets, whoever asks."""
    known = json.loads(row[-1])
    made = Happening(*row[:-1])
    shown = redacted_texts(known, job_type=made.job_type or None, workflow=made.workflow or None)
    return replace(made, details=shown) if isinstance(shown, dict) else made


def sentence(each: Happening) -> str:
    """In words: "ana paused queue reports: db migration"."""
    return _SENTENCES.get(each.kind, _other)(each)


def _worker_started(each: Happening) -> str:
    version = each.details.get("version")
    told = f"worker {each.target_id} started" + (f" with code {version}" if version else "")
    return f"{told}, the first with it" if each.details.get("new_version") else told


def _worker_stopped(each: Happening) -> str:
    end, heard = each.details.get("end"), each.details.get("heard_at")
    if end == "silent" and heard:
        at = str(heard)[:19].replace("T", " ")
        return f"worker {each.target_id} went silent without a goodbye; last heard of at {at}"
    if end and end != "silent":
        return f"worker {each.target_id} died: {end}"
    return f"worker {each.target_id} stopped"  # also one of an older version, which had been silent and came back


def _lease_reclaimed(each: Happening) -> str:
    count, what = each.details.get("count"), each.details.get("label", "job")
    spent = each.details.get("spent")
    name = each.workflow or each.job_type
    told = f"worker {each.target_id} died or went silent; {_number(count, what)} of {name} taken back"
    end = "paused" if what == "execution" else "dead"
    return f"{told}, {spent} of them {end}: crash budget spent" if spent else told


def _job_died(each: Happening) -> str:
    count, status, error = (each.details.get(name) for name in ("count", "status", "error"))
    one = f"job {each.target_id} of {each.job_type} is {status}"
    return f"{one if count == 1 else f'{count} jobs of {each.job_type} are {status}'}: {error}"


def _paused(each: Happening) -> str:
    until = each.details.get("until")
    try:
        ends = f" until {dt.datetime.fromisoformat(until):%Y-%m-%d %H:%M:%S %Z}" if until else ""
    except (
        TypeError,
        ValueError,
    ):  # "infinity", of an action that others have written: no reason to show no page
        ends = f" until {until}"
    return f"{each.actor} paused {_target(each)}{ends}{_reason(each)}"


def _resumed(each: Happening) -> str:
    return (
        f"{each.actor} resumed {_target(each)}{_reason(each)}"
        if each.actor
        else f"the pause of {_target(each)} ended by itself"
    )


def _bulk(each: Happening) -> str:
    state = each.details.get("state")
    verb = str(each.details.get("verb", "")).replace("_", " ")
    done = f", {state}: {each.details.get('done')} done" if state else ""
    return f"{each.actor}: {verb} bulk {each.target_id}{done}{_reason(each)}"


def _approval(each: Happening) -> str:
    if each.details.get("timeout"):
        end = {True: "approved", False: "rejected"}.get(each.details.get("approved"), "the workflow is told")  # type: ignore[arg-type]
        return f"nobody decided {each.details.get('name')!r} of {each.workflow} in time: {end}"
    voted = "approved" if each.details.get("approved") else "rejected"
    told = each.details.get("told") or voted
    return f"{each.actor} {voted} in execution {each.target_id} of {each.workflow}: {told}{_reason(each)}"


def _other(each: Happening) -> str:
    verb = str(each.details.get("verb", each.kind)).replace("_", " ")
    more = each.details.get("count")
    others = f" and {more - 1} more" if isinstance(more, int) and more > 1 else ""
    return f"{each.actor}: {verb} {_target(each)}{others}{_reason(each)}"


_SENTENCES: dict[str, Callable[[Happening], str]] = {
    "worker_started": _worker_started,
    "worker_stopped": _worker_stopped,
    "lease_reclaimed": _lease_reclaimed,
    "error_new": lambda each: f"new error {each.details.get('error')} in {each.job_type}",
    "job_died": _job_died,
    "paused": _paused,
    "resumed": _resumed,
    "bulk": _bulk,
    "approval": _approval,
    "execution_paused": lambda each: f"execution {each.target_id} of {each.workflow} paused",
    "execution_failed": lambda each: f"execution {each.target_id} of {each.workflow} failed",
}


def _target(each: Happening) -> str:
    return f"{'job type' if each.target_kind == 'type' else each.target_kind} {each.target_id}"


def _reason(each: Happening) -> str:
    reason = each.details.get("reason")
    return f": {reason}" if reason else ""


def _number(count: Any, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
