"""The rules about queues and workers. Each is a function from facts to problems, with figures in its sentence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from shlex import quote

from pgjobs.health.facts import READY_LIMIT, Facts
from pgjobs.health.phrases import many, span
from pgjobs.health.verdict import Problem
from pgjobs.health.work import RATE_MINUTES, Waiting
from pgjobs.health.workers import NEVER_SERVED, WorkerRow
from pgjobs.queue.pauses import QUEUE
from pgjobs.redaction import redacted_text

Rule = Callable[[Facts], Iterator[Problem]]

_WINDOW = dt.timedelta(minutes=RATE_MINUTES)
_SKEW = dt.timedelta(minutes=15)
_SILENCE_TOLD = dt.timedelta(hours=1)


def no_worker(facts: Facts) -> Iterator[Problem]:
    """Due work that nobody is there to do."""
    for queue, waiting in facts.waiting.items():
        if not waiting.due or waiting.oldest_at is None or facts.serving(queue):
            continue
        last = max(
            (worker for worker in facts.workers if worker.serves(queue)),
            key=lambda worker: worker.heartbeat_at,
            default=None,
        )
        since = max(waiting.oldest_at, last.heartbeat_at) if last else waiting.oldest_at
        yield Problem(
            "NO_WORKER",
            f"No live worker serves queue {queue!r}: {_ready(waiting)}, the oldest for "
            f"{span(facts.clock - waiting.oldest_at)}. {_last_words(last)}",
            f"manage.py runworkers --queues {quote(queue)}",
            since,
            queue,
            "queue",
            queue,
        )


def stalled(facts: Facts) -> Iterator[Problem]:
    """Workers are there, work waits, and nothing comes to an end."""
    for queue, waiting in facts.waiting.items():
        workers = facts.serving(queue)
        if not waiting.due or waiting.oldest_at is None or not workers or facts.pause_of(queue):
            continue
        waited = facts.clock - waiting.oldest_at
        capacity = sum(worker.slots for worker in workers)
        wedged = all(worker.state == "wedged" for worker in workers)
        running = facts.running(queue)
        rate = facts.rates.get(queue)
        if waited < _WINDOW or (rate and rate.attempts) or not (running >= capacity or wedged):
            continue
        ends = [worker.last_done_at for worker in workers if worker.last_done_at]
        yield Problem(
            "STALLED",
            f"Queue {queue!r} stands still: {running} of {capacity} slots are taken, {_ready(waiting)}, and nothing "
            f"has ended for {RATE_MINUTES} min."
            + (" The claim loops of its workers do not turn." if wedged else ""),
            "See what runs and what it waits for; end a wedged worker by SIGTERM; add workers.",
            max(ends, default=waiting.oldest_at),
            queue,
            "queue",
            queue,
        )


def lease_lost(facts: Facts) -> Iterator[Problem]:
    """Rows whose worker is gone and that nobody takes back."""
    for held in facts.held:
        if held.lapsed:
            yield Problem(
                "LEASE_LOST",
                f"{many(held.lapsed, held.kind)} in queue {held.queue!r} ran under a lease that has lapsed, "
                f"{held.lapsed_id} among them, and nobody takes them back.",
                "Start workers without --no-reaper, or manage.py runreaper.",
                held.lapsed_since,
                held.queue,
                held.kind,
                str(held.lapsed_id),
            )


def wedged(facts: Facts) -> Iterator[Problem]:
    """Processes that only look alive."""
    for worker in facts.workers:
        if worker.state == "wedged":
            yield Problem(
                "WEDGED",
                f"Worker {worker.name} (pid {worker.pid} on {worker.host}): its heart beat "
                f"{span(worker.heartbeat_age)} ago, but its claim loop last turned "
                f"{span(worker.poll_age or dt.timedelta())} ago.",
                f"See its log and pg_stat_activity for what it waits for; then end pid {worker.pid} by SIGTERM.",
                worker.last_poll_at,
                "",
                "worker",
                str(worker.id),
            )


def late(facts: Facts) -> Iterator[Problem]:
    """Queues whose oldest waits longer than they may."""
    for queue, waiting in facts.waiting.items():
        if waiting.oldest_at is None or facts.pause_of(queue):
            continue  # that a paused queue is late is meant so
        waited, slo = facts.clock - waiting.oldest_at, facts.slo(queue)
        if waited.total_seconds() > slo:
            yield Problem(
                "LATE",
                f"The oldest in queue {queue!r} has waited {span(waited)} of at most {span(slo)}; {_ready(waiting)}.",
                "Add workers or slots; see which job types take the time.",
                waiting.oldest_at,
                queue,
                "queue",
                queue,
            )


def paused(facts: Facts) -> Iterator[Problem]:
    """What a person holds back. It is told so that nobody forgets it."""
    for pause in facts.pauses:
        until = f"until {pause.until:%Y-%m-%d %H:%M:%S}" if pause.until else "until it is resumed"
        what = "Queue" if pause.kind == QUEUE else "Type"
        yield Problem(
            "PAUSED",
            f"{what} {pause.name!r} is paused by {pause.by} for {span(facts.clock - pause.since)}, {until}: "
            f"{redacted_text(pause.reason)}",
            f"manage.py pgjobs_resume --{pause.kind} {quote(pause.name)}",
            pause.since,
            pause.name if pause.kind == QUEUE else "",
            "queue" if pause.kind == QUEUE else "job_type",
            pause.name,
        )


def unknown_types(facts: Facts) -> Iterator[Problem]:
    """Work for which every worker of the queue lacks the code."""
    for each in facts.waiting_types:
        workers = facts.serving(each.queue)
        if not workers or any(w.handlers is None or each.name in w.handlers for w in workers):
            continue
        yield Problem(
            "UNKNOWN_TYPES",
            f"No live worker of queue {each.queue!r} knows {each.name!r}; {many(each.rows, 'row')} of it at the "
            f"head of the queue, the oldest for {span(facts.clock - each.oldest_at)}.",
            "Deploy the code that has it and start the workers anew; if it was renamed, keep the old name with name=; "
            "or cancel them.",
            each.oldest_at,
            each.queue,
            each.kind,
            each.name,
        )


def worker_silent(facts: Facts) -> Iterator[Problem]:
    """Processes that went without a goodbye. Told for an hour: what they held is given back long before."""
    for worker in facts.workers:
        if worker.state == "silent" and worker.heartbeat_age < _SILENCE_TOLD:
            yield Problem(
                "WORKER_SILENT",
                f"Worker {worker.name} (pid {worker.pid} on {worker.host}) has been silent for "
                f"{span(worker.heartbeat_age)} and did not say goodbye.",
                "See the log of that host: killed for memory, power lost, cut off from the database?",
                worker.heartbeat_at,
                "",
                "worker",
                str(worker.id),
            )


def version_skew(facts: Facts) -> Iterator[Problem]:
    """A deployment that did not reach everybody."""
    first: dict[str, dt.datetime] = {}
    count: dict[str, int] = {}
    for worker in facts.workers:
        if worker.is_serving and worker.code_version:
            version = worker.code_version
            first[version] = min(first.get(version, worker.started_at), worker.started_at)
            count[version] = count.get(version, 0) + 1
    if len(first) < 2:
        return
    newest = max(first, key=lambda version: first[version])
    if facts.clock - first[newest] > _SKEW:
        told = ", ".join(f"{version} ×{count[version]}" for version in sorted(first, key=first.__getitem__))
        yield Problem(
            "VERSION_SKEW",
            f"Live workers run {len(first)} versions of the code: {told}; the newest for "
            f"{span(facts.clock - first[newest])}.",
            "Finish the deployment: restart the workers of the older version.",
            first[newest],
        )


def stats_stale(facts: Facts) -> Iterator[Problem]:
    """Rates and charts that no longer tell the truth."""
    ends = [worker.last_done_at for worker in facts.workers if worker.is_serving and worker.last_done_at]
    newest = facts.newest_minute
    limit = dt.timedelta(minutes=3)
    if not ends or (newest and max(ends) - newest < limit + dt.timedelta(minutes=1)):
        return
    if facts.clock - (newest or min(ends)) > limit:
        yield Problem(
            "STATS_STALE",
            f"Jobs ended {span(facts.clock - max(ends))} ago, but the newest figures are "
            + (f"{span(facts.clock - newest)} old." if newest else "missing."),
            "See the workers' log for what keeps them from writing to pgjobs_minute.",
            newest,
        )


def _ready(waiting: Waiting) -> str:
    parts = [
        many(n, noun, READY_LIMIT)
        for n, noun in ((waiting.jobs, "job"), (waiting.executions, "execution"))
        if n
    ]
    return f"{' and '.join(parts)} due"


def _last_words(worker: WorkerRow | None) -> str:
    if worker is None:
        return NEVER_SERVED
    if worker.stopped_at:
        return f"The last, {worker.name}, stopped {span(worker.clock - worker.stopped_at)} ago."
    if worker.state == "draining":
        return f"The last, {worker.name}, is draining."
    return f"The last, {worker.name}, was heard of {span(worker.heartbeat_age)} ago."
