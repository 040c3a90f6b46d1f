"""All rules, each on its own: one that cannot be looked at is unknown, and never passes for fine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import replace

from django.db import Error

from pgjobs.conf import get_settings
from pgjobs.connections import drop, is_outage, migration, sqlstate
from pgjobs.exceptions import UnknownName
from pgjobs.health import rules, rules_of_ends, work, workers
from pgjobs.health.facts import Facts
from pgjobs.health.reading import TIMEOUT, Reader
from pgjobs.health.rules import Rule
from pgjobs.health.verdict import CODES, Problem, Verdict, ranked
from pgjobs.queue import names

RULES: Mapping[str, Rule] = {
    "NO_WORKER": rules.no_worker,
    "STALLED": rules.stalled,
    "LEASE_LOST": rules.lease_lost,
    "WEDGED": rules.wedged,
    "LATE": rules.late,
    "DEAD_NEW": rules_of_ends.dead_new,
    "DEAD_TOTAL": rules_of_ends.dead_total,
    "UNKNOWN_TYPES": rules.unknown_types,
    "PAUSED_EXECUTIONS": rules_of_ends.paused_executions,
    "APPROVAL_OVERDUE": rules_of_ends.approval_overdue,
    "WAIT_OVERDUE": rules_of_ends.wait_overdue,
    "PAUSED": rules.paused,
    "WORKER_SILENT": rules.worker_silent,
    "VERSION_SKEW": rules.version_skew,
    "BULK_STUCK": rules_of_ends.bulk_stuck,
    "DB_HORIZON": rules_of_ends.db_horizon,
    "STATS_STALE": rules.stats_stale,
}


OF_WAITING = {"NO_WORKER", "STALLED", "LATE", "UNKNOWN_TYPES"}
"""Rules that go through what waits, queue by queue."""
OF_WORKERS = {
    "NO_WORKER",
    "STALLED",
    "WEDGED",
    "UNKNOWN_TYPES",
    "WORKER_SILENT",
    "VERSION_SKEW",
    "STATS_STALE",
}
OF_HELD = {"STALLED", "LEASE_LOST"}
"""Rules that go through the workers, and through what runs."""


def examine(*, using: str | None = None) -> Verdict:
    """Look at everything by at most a dozen bounded reads, and change nothing.

    Never raises for what the database says: a read that fails makes the rules that need it unknown, and a database
    that does not answer makes all of them so.
    """
    with Reader(using or get_settings().database) as reader:
        return judge(Facts(reader))


def judge(facts: Facts) -> Verdict:
    """The verdict on facts that may have been read in part by others."""
    problems: list[Problem] = []
    unknown: dict[str, str] = {}
    checked_at: dt.datetime | None = None
    gone = ""
    try:
        checked_at = facts.clock
    except Error as error:
        gone = _away(error, facts) or migration(error, facts.reader.using)
    for code in CODES:
        rule = RULES.get(code)
        if rule is None:
            continue
        if gone:
            unknown[code] = gone
            continue
        try:
            problems += list(rule(facts))  # whole, or not at all
            if more := _not_looked_at(code, facts):
                unknown[code] = f"more than {more}; the rest was not looked at"
        except Error as error:
            unknown[code] = told(error, facts.reader.using)
            gone = _away(error, facts)
    return Verdict(checked_at, ranked(problems), unknown)


def _not_looked_at(code: str, facts: Facts) -> str:
    """What there is more of than the rule has seen; empty when it has seen all."""
    if code in OF_WAITING and facts.waiting_is_cut:
        return f"{work.LANES:,} queues and priorities wait"
    if code in OF_WORKERS and facts.workers_are_cut:
        return f"{workers.MOST:,} workers are alive, or were an hour ago"
    if code in OF_HELD and facts.held_is_cut:
        return f"{work.RUNNING:,} jobs or executions run"
    return ""


def narrowed(
    verdict: Verdict, codes: Iterable[str], queue: str | None, *, using: str | None = None
) -> Verdict:
    """The part about these rules, and about one queue.

    Raises :class:`UnknownName` for a queue that nothing is known of: that nothing is stuck in it is no news. Where
    that cannot be looked at, the answer is unknown.
    """
    part = verdict.only(codes, queue)
    if queue is None or part.problems or part.checked_at is None:
        return part
    try:
        with Reader(using or get_settings().database) as reader:
            misspelt = reader.within(lambda: names.unknown("queue", queue, using=reader.using))
    except Error as error:
        return replace(
            part,
            unknown={**part.unknown, "queue": f"whether there is a queue {queue!r}: {told(error, using)}"},
        )
    if misspelt:
        raise UnknownName(misspelt)
    return part


def told(error: Error, using: str | None = None) -> str:
    """Why something could not be read, in a line."""
    if cure := migration(error, using or get_settings().database):
        return cure
    if sqlstate(error) == "57014":
        return f"took longer than {TIMEOUT}"
    return " ".join(str(error).split())[:300]


def _away(error: Error, facts: Facts) -> str:
    """Why nothing more need be asked; empty when only this one statement failed."""
    if not is_outage(error) or sqlstate(error) == "57014":
        return ""
    drop(facts.reader.using)
    return told(error, facts.reader.using)
