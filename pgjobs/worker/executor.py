"""Running a job is one pipe: announce, known, decode, call, judge, hand to the settler."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from pgjobs import codec, signals
from pgjobs.backoff import MAX_DELAY_SECONDS
from pgjobs.exceptions import (
    AlreadyProduced,
    Fail,
    InvalidOption,
    JobTimeout,
    LeaseLost,
    NotStorable,
    Retry,
    Snooze,
)
from pgjobs.queue.attempts import Ended
from pgjobs.queue.outcomes import (
    Abandoned,
    AlreadyExisted,
    Failed,
    Finished,
    Outcome,
    Problem,
    Raised,
    Snoozed,
    Succeeded,
)
from pgjobs.queue.registry import Handler, registry
from pgjobs.worker import clock
from pgjobs.worker.context import JobContext, encode_result
from pgjobs.worker.deadlines import bounded
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.hygiene import clean_up
from pgjobs.worker.problems import describe, project_frame
from pgjobs.worker.service import RECONNECT

logger = logging.getLogger("pgjobs.worker")

_GIVEN_BACK = 3
"""Attempts of one job that a process gives back because the server went away from under ``ctx.finish``."""
_MOST_CUT_OFF = 10_000

Settled = Callable[[Holding, Ended], None]


class Executor:
    """Runs holdings, in a slot's thread or on the event loop, and passes each end to ``settled``."""

    def __init__(
        self,
        *,
        using: str,
        holdings: Holdings,
        settled: Settled,
        confirm: Callable[[Holding], bool],
        stopping: threading.Event,
    ) -> None:
        self._using = using
        self._holdings = holdings
        self._settled = settled
        self._confirm = confirm
        self._stopping = stopping
        self._lock = threading.Lock()
        self._cut_off: dict[int, int] = {}
        """Job -> how often the server went away from under its ``ctx.finish`` in this process."""

    def is_async(self, holding: Holding) -> bool:
        """Whether the handler belongs on the event loop."""
        return registry.get(holding.job.job_type).is_async

    def run(self, holding: Holding) -> None:
        """One attempt of a plain function, from start to the settler's door."""
        context = self._context(holding)
        try:
            outcome = self._before(holding) or self._called(holding, context)
        finally:
            ran = math.inf if holding.timed_out else clock.now() - holding.started_at
            clean_up(*_names(holding), ran=ran)
        self._end(holding, context, outcome)

    def _called(self, holding: Holding, context: JobContext) -> Outcome:
        try:
            handler, arguments = self._called_with(holding, context)
            return bounded(
                holding,
                handler.timeout,
                lambda: returned(handler.function(*arguments[0], **arguments[1]), context),
            )
        except BaseException as error:
            return self._raised(holding, context, error)

    async def run_async(self, holding: Holding) -> None:
        """The same for a coroutine function; synchronous ORM calls inside it get a thread of their own."""
        context = self._context(holding)
        scope = ThreadSensitiveContext()
        async with scope:
            outcome = self._before(holding)
            if outcome is None:
                holding.task = asyncio.current_task()
                try:
                    handler, arguments = self._called_with(holding, context)
                    if handler.timeout is not None:
                        holding.deadline = holding.started_at + handler.timeout
                    async with asyncio.timeout(handler.timeout):
                        value = await handler.function(*arguments[0], **arguments[1])
                    outcome = returned(value, context)
                except BaseException as error:
                    if isinstance(error, TimeoutError) and self._is_late(holding):
                        error = JobTimeout(holding.lease.pk, handler.timeout or 0)
                    outcome = self._raised(holding, context, error)
                holding.task = None
            if scope in SyncToAsync.context_to_thread_executor:
                await sync_to_async(clean_up)(*_names(holding))
        self._end(holding, context, outcome)

    def _context(self, holding: Holding) -> JobContext:
        return JobContext(holding, self._using, self._confirm, self._stopping)

    def _before(self, holding: Holding) -> Outcome | None:
        """Announce the start; the outcome at once when there is nothing to run."""
        job = holding.job
        self._holdings.begin(holding)
        if signals.heard(signals.job_started, job.job_type):
            signals.job_started.send_robust(
                job.job_type, job_id=job.lease.pk, attempt=job.attempt, worker=job.lease.owner
            )
        if job.already_produced and job.idempotency_key:
            return AlreadyExisted(job.idempotency_key)
        return None

    def _called_with(
        self, holding: Holding, context: JobContext
    ) -> tuple[Handler, tuple[tuple[Any, ...], dict[str, Any]]]:
        job = holding.job
        handler = registry.get(job.job_type)
        holding.started_at = clock.now()
        payload = codec.loads(job.payload)
        if not isinstance(payload, dict):
            raise Fail(f"the payload is {type(payload).__name__}, not an object of keyword arguments")
        return handler, ((context,) if handler.takes_context else (), payload)

    def _raised(self, holding: Holding, context: JobContext, error: BaseException) -> Outcome:
        """What an exception comes to."""
        if error is context.cut_off and (wait := self._given_back(holding.lease.pk)) is not None:
            return Snoozed(wait, codec.storable_text(f"ctx.finish() broke off: {_text(error)}", 500))
        match error:
            case AlreadyProduced(key=key):
                return AlreadyExisted(key)
            case LeaseLost():
                return Abandoned()
            case Fail(reason=reason):
                return Failed(
                    Problem("fail", "", codec.storable_text(_text(reason), 2_000), frame=project_frame(error))
                )
            case NotStorable() if error.path.startswith("result"):
                return Failed(describe(error, "fail"))
            case Snooze(delay=delay):
                return _snoozed(error, delay)
            case Retry(after=after) if after is not None:
                return _retried(error, after)
            case JobTimeout():
                return self.by_policy(holding, error, "timeout")
        return self.by_policy(holding, error, "retry" if isinstance(error, Retry) else "error")

    def by_policy(self, holding: Holding, error: BaseException, kind: str) -> Outcome:
        """What a spent attempt comes to: the next one after the job type's delay, or the end."""
        problem = describe(error, kind)
        delay = self.delay(holding, error)
        return Failed(problem) if delay is None else Raised(problem, delay)

    def delay(self, holding: Holding, error: BaseException) -> float | None:
        """Seconds until the next attempt, by the job type's policy; None when the policy says stop."""
        policy = registry.get(holding.job.job_type).retry
        failed = max(holding.job.attempt - holding.job.crash_count, 1)
        try:
            if callable(policy):
                return None if (seconds := policy(failed, error)) is None else _seconds(seconds)
            return policy.delay(failed)
        except Exception:
            logger.exception("job_type=%s its retry policy raised", holding.job.job_type)
            return 60.0

    def _given_back(self, pk: int) -> float | None:
        """Seconds until the attempt of a job whose ``ctx.finish`` was cut off is made again; None: it is spent.

        A job whose own statement brings the server down must come to its end.
        """
        with self._lock:
            if len(self._cut_off) > _MOST_CUT_OFF:
                self._cut_off.clear()
            times = self._cut_off[pk] = self._cut_off.get(pk, 0) + 1
        return RECONNECT.delay(times) if times <= _GIVEN_BACK else None

    def _is_late(self, holding: Holding) -> bool:
        return holding.deadline is not None and clock.now() >= holding.deadline

    def _end(self, holding: Holding, context: JobContext, outcome: Outcome) -> None:
        holding.ended = True
        if context.finished:
            if not isinstance(outcome, Succeeded):
                logger.warning(
                    "job=%s raised after ctx.finish() had committed; it stays succeeded", holding.lease.pk
                )
            outcome = Finished()
        self._settled(holding, Ended(holding.job, outcome, clock.now() - holding.started_at))


def returned(value: Any, context: JobContext) -> Outcome:
    """A returned value as an outcome; what ``ctx.finish`` has stored is not replaced."""
    if context.finished or value is None:
        return Succeeded()
    return Succeeded(encode_result(value))


def _snoozed(error: BaseException, delay: Any) -> Outcome:
    try:
        return Snoozed(_seconds(delay), codec.storable_text(_text(getattr(error, "reason", "")), 500))
    except InvalidOption as refused:
        return Failed(describe(refused, "fail"))


def _retried(error: BaseException, after: Any) -> Outcome:
    try:
        return Raised(describe(error, "retry"), _seconds(after))
    except InvalidOption as refused:
        return Failed(describe(refused, "fail"))


def _seconds(delay: Any) -> float:
    """A moment in the past, as the difference of two times may give it, is now."""
    seconds = delay.total_seconds() if isinstance(delay, dt.timedelta) else delay
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not seconds <= MAX_DELAY_SECONDS:  # NaN is not, either
        raise InvalidOption("delay", delay, "give seconds or a timedelta of at most a year.")
    return float(max(seconds, 0))


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return json.dumps(type(value).__name__)


def _names(holding: Holding) -> tuple[str, int, str]:
    return holding.lease.label, holding.lease.pk, holding.job.job_type
