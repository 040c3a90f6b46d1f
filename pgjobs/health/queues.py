"""The table of queues: how each stands, by the same facts and words as the rules."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from pgjobs.conf import get_settings
from pgjobs.health import work
from pgjobs.health.facts import FAR, Facts
from pgjobs.health.phrases import span
from pgjobs.health.reading import Reader
from pgjobs.health.verdict import Problem
from pgjobs.queue.models import QueuePause
from pgjobs.queue.pauses import QUEUE
from pgjobs.queue.stats import COUNT_LIMIT

_STATES = {"NO_WORKER": "no worker", "STALLED": "stalled", "PAUSED": "paused", "LATE": "late"}
_WEDGED = "wedged"  # no problem of the queue's yet: nothing has waited for long


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue."""

    name: str
    ready: int
    """Due jobs and executions; one above ``COUNT_LIMIT`` means "and more"."""
    executions: int
    """Of these."""
    later: int
    """Not due yet; capped likewise."""
    next_at: dt.datetime | None
    oldest_at: dt.datetime | None
    """Since when the oldest that is due waits."""
    oldest: dt.timedelta | None
    slo_seconds: float
    running: int
    capacity: int
    """Slots of the live workers that serve it; they may serve others too."""
    workers: int
    in_per_minute: float
    done_per_minute: float
    failed_share: float | None
    """Of the attempts of the last minutes; None when there were none."""
    trend: str
    state: str
    """"ok", "late", "wedged", "paused", "stalled" or "no worker"."""
    why: str
    """What is behind the state, in words; empty when all is well."""
    pause: QueuePause | None
    """Also where another state outranks it."""

    @property
    def ready_capped(self) -> bool:
        """Whether there are more than were counted."""
        return self.ready > COUNT_LIMIT


def queue_table(problems: Iterable[Problem] = (), *, using: str | None = None) -> list[QueueRow]:
    """:func:`queue_rows` by a look of its own."""
    with Reader(using or get_settings().database) as reader:
        return queue_rows(Facts(reader, far=True), problems)


def queue_rows(facts: Facts, problems: Iterable[Problem]) -> list[QueueRow]:
    """Every queue with work, with recent ends, paused, or named by a live worker.

    Those in trouble come first, then the oldest.

    ``problems`` are those of an examination at about the same moment: they make the states. Raises what the database
    raises.
    """
    waiting = facts.waiting if facts.far else work.read_waiting(facts.reader, **FAR)[0]
    arrivals = facts.arrivals
    named = {queue for worker in facts.workers if worker.is_serving for queue in worker.queues}
    names = {*waiting, *facts.rates, *named, *(held.queue for held in facts.held)}
    names |= {pause.name for pause in facts.pauses if pause.kind == QUEUE}
    by_queue: dict[str, Problem] = {}
    for problem in problems:
        if problem.queue and problem.code in _STATES:
            by_queue.setdefault(problem.queue, problem)
    rows = [
        _row(facts, name, waiting.get(name, work.Waiting()), arrivals.get(name, 0.0), by_queue.get(name))
        for name in names
    ]
    states = [*_STATES.values(), _WEDGED]
    return sorted(
        rows,
        key=lambda row: (
            states.index(row.state) if row.state in states else len(states),
            -(row.oldest.total_seconds() if row.oldest else 0.0),
            row.name,
        ),
    )


def _row(
    facts: Facts, name: str, waiting: work.Waiting, arrivals: float, problem: Problem | None
) -> QueueRow:
    workers = facts.serving(name)
    rate = facts.rates.get(name, work.Rate())
    ready = min(waiting.due, COUNT_LIMIT + 1)
    oldest = max(facts.clock - waiting.oldest_at, dt.timedelta()) if waiting.oldest_at else None
    state, why = (_STATES[problem.code], problem.why) if problem else ("ok", "")
    if problem is None and workers and all(worker.state == "wedged" for worker in workers):
        state, why = _WEDGED, "The claim loops of its workers do not turn."
    return QueueRow(
        name=name,
        ready=ready,
        executions=waiting.executions,
        later=waiting.later,
        next_at=waiting.next_at,
        oldest_at=waiting.oldest_at,
        oldest=oldest,
        slo_seconds=facts.slo(name),
        running=facts.running(name),
        capacity=sum(worker.slots for worker in workers),
        workers=len(workers),
        in_per_minute=arrivals,
        done_per_minute=rate.done_per_minute,
        failed_share=rate.failed_share,
        trend=_trend(ready, arrivals, rate.done_per_minute),
        state=state,
        why=why,
        pause=facts.pause_of(name),
    )


def _trend(ready: int, arrivals: float, done: float) -> str:
    """Where it goes, if the last minutes go on: what is enqueued against what ends."""
    if not ready:
        return "empty"
    more = "" if ready <= COUNT_LIMIT else "at least "
    falls = done - arrivals
    if not done and not arrivals:
        return "stands still"
    if abs(falls) < 0.05 * max(done, arrivals):
        return "steady"
    if falls < 0:
        return f"grows {-falls:,.0f}/min" if falls <= -1 else "grows"
    return f"drains in {more}{span(ready / falls * 60)}"
