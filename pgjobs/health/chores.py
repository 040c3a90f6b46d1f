"""The chores of the live workers: who does which, and how long ago it was last done."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgjobs.conf import Settings, get_settings
from pgjobs.health.phrases import span
from pgjobs.health.reading import Reader
from pgjobs.queue.rollups import LIFETIME

_MOST = 200

_PROCESSES = f"""
SELECT statement_timestamp(), figures.minute, EXISTS (SELECT 1 FROM pgjobs_execution WHERE status = 'waiting'),
       worker.* FROM (
    SELECT max(minute) AS minute FROM pgjobs_minute WHERE minute > '{LIFETIME}') AS figures
LEFT JOIN LATERAL (
    SELECT name, version, code_version, COALESCE(runtime::text, 'null'), COALESCE(chores::text, 'null'), last_done_at,
           slots = 0
    FROM pgjobs_worker WHERE (stopped_at IS NULL OR slots = 0) AND heartbeat_at > statement_timestamp() -
      make_interval(secs => GREATEST(%(silence)s, CASE WHEN slots = 0 THEN 3 * heartbeat_seconds END))
    ORDER BY slots = 0, name LIMIT %(most)s
) AS worker ON true"""  # noqa: S608 - one constant

_FIGURES_LATE = dt.timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class Process:
    """One live worker, by its last heartbeat."""

    name: str
    version: str
    """Of pgjobs."""
    code_version: str
    runtime: dict[str, str]
    """Versions of what it runs on; empty when it does not say."""
    chores: dict[str, dt.datetime] | None
    """When it last did each; None when it does not say."""
    last_done_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Processes:
    """The live workers, as at ``clock``."""

    clock: dt.datetime
    newest_minute: dt.datetime | None
    """The last minute in which anything was counted."""
    live: list[Process]
    waiting: bool = False
    """Whether an execution of a workflow waits."""
    reapers: list[Process] = field(default_factory=list)
    """Each ``runreaper``, which is no worker."""


@dataclass(frozen=True, slots=True)
class Chore:
    """What there is to say of one chore."""

    title: str
    state: str
    """ "ok", "warn", "fail" or "unknown"."""
    what: str
    cure: str = ""


def read_processes(reader: Reader) -> Processes:
    """All live workers, at most 200."""
    found = reader.ask(_PROCESSES, silence=get_settings().lease_seconds, most=_MOST)
    clock, minute, waiting = found[0][:3]
    there = [row for row in found if row[3] is not None]
    live, reapers = ([_process(*row[3:-1]) for row in there if row[-1] is alone] for alone in (False, True))
    return Processes(clock, minute, live, waiting, reapers)


def _process(name: str, version: str, code: str, runtime: str, chores: str, done_at: Any) -> Process:
    told, done = json.loads(runtime), json.loads(chores)
    return Process(
        name,
        version,
        code,
        {str(key): str(value) for key, value in told.items()} if isinstance(told, dict) else {},
        {key: dt.datetime.fromisoformat(at) for key, at in done.items()} if isinstance(done, dict) else None,
        done_at,
    )


def chores(seen: Processes) -> Iterator[Chore]:
    """Each chore by whoever did it last."""
    settings = get_settings()
    # An idle process looks rarely, and its row tells of it a heartbeat later.
    waits = 2 * (max(settings.poll_seconds, settings.idle_poll_seconds) + settings.heartbeat_seconds)
    yield _one(
        seen,
        "reaper",
        "Reaper",
        6 * settings.reap_seconds + waits,
        absent=Chore(
            "Reaper",
            "warn",
            "No live worker takes back lapsed leases, and no runreaper does.",
            "Start a worker without --no-reaper, or manage.py runreaper.",
        ),
        also=seen.reapers,
    )
    yield _one(
        seen,
        "sweeper",
        "Waits of workflows",
        60 + waits,
        absent=_nobody_sweeps(seen),
    )
    yield _pruner(seen, settings, 120 + waits)
    yield _figures(seen)
    yield _one(
        seen,
        "bulk",
        "Bulk operations",
        60 + waits,
        absent=Chore("Bulk operations", "unknown", "No live worker has looked for any yet."),
    )


def _one(
    seen: Processes, name: str, title: str, limit: float, *, absent: Chore, also: Sequence[Process] = ()
) -> Chore:
    doers = [*seen.live, *also]
    if not doers:
        return _undone(title)
    if all(each.chores is None for each in doers):
        return Chore(title, "unknown", "The live workers are of a version that does not say.")
    done = [(each.chores[name], each.name) for each in doers if each.chores and name in each.chores]
    if not done and any(each.chores is None for each in doers):
        return Chore(
            title, "unknown", "No live worker says that it does it; some are of a version that says nothing."
        )
    if not done:
        return absent
    at, who = max(done)
    age = max(seen.clock - at, dt.timedelta())
    by = f"by {who}" + (f"; {len(done)} processes do it" if len(done) > 1 else "")
    if age.total_seconds() > limit:
        cure = "See the log of that worker: it does its chores between two claims."
        return Chore(title, "fail", f"Last done {span(age)} ago {by}.", cure)
    return Chore(title, "ok", f"Done {span(age)} ago {by}.")


def _undone(title: str) -> Chore:
    return Chore(title, "unknown", "No live worker does it.", "Start one: manage.py runworkers.")


def _nobody_sweeps(seen: Processes) -> Chore:
    title = "Waits of workflows"
    if not seen.waiting:
        return Chore(title, "ok", "No live worker carries workflows, and no execution waits.")
    return Chore(
        title,
        "warn",
        "Executions wait, and no live worker carries workflows: what is due is not woken.",
        "Start a worker with the code of the workflows: manage.py runworkers.",
    )


def _pruner(seen: Processes, settings: Settings, limit: float) -> Chore:
    kept = (settings.job_retention_seconds, settings.job_retention_failed_seconds)
    if all(each is None for each in kept):
        return Chore("Pruner", "ok", "Off: JOB_RETENTION_SECONDS is not set, so ended jobs stay.")
    absent = Chore("Pruner", "unknown", "No live worker has taken a step of the walk yet.")
    return _one(seen, "pruner", "Pruner", limit, absent=absent)


def _figures(seen: Processes) -> Chore:
    """Figures are written when there is something to count, so their age alone says nothing."""
    title, newest = "Statistics", seen.newest_minute
    if not seen.live:
        return _undone(title)
    ends = [each.last_done_at for each in seen.live if each.last_done_at]
    told = ""
    if newest:  # the session may be in another zone
        told = f"The newest figures are of {newest.astimezone(dt.UTC):%H:%M} UTC, {span(seen.clock - newest)} ago"
    if not ends:
        return Chore(
            title, "ok", f"{told}; no live worker has ended a job since." if told else "Nothing ended yet."
        )
    behind = max(ends) - newest if newest else seen.clock - min(ends)
    if (
        behind > _FIGURES_LATE + dt.timedelta(minutes=1)
        and seen.clock - (newest or min(ends)) > _FIGURES_LATE
    ):
        return Chore(
            title,
            "fail",
            f"Jobs ended {span(seen.clock - max(ends))} ago. {told or 'There are no figures'}.",
            "See the workers' log for what keeps them from writing to pgjobs_minute.",
        )
    return Chore(title, "ok", f"{told or 'The first figures are on their way'}.")
