"""The writes of executions, in groups: steps of many executions in one statement, parks and ends one by one."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pgjobs import signals
from pgjobs.connections import busy, is_outage
from pgjobs.exceptions import LeaseLost
from pgjobs.queue.enqueue import NewJobs
from pgjobs.worker.group import GroupWriter
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.workflows.durable import Enough
from pgjobs.workflows.history import read_output
from pgjobs.workflows.journal import StepRow, record, still_held
from pgjobs.workflows.lifecycle import NewExecution, NewWait, Standing, open_waits
from pgjobs.workflows.suspension import Stopped

logger = logging.getLogger("pgjobs.worker")


@dataclass(slots=True, eq=False)
class StepRequest:
    """Write a step."""

    holding: Holding
    step: StepRow
    answer: Future[dt.datetime] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class OpenRequest:
    """Open waits and park, or go on."""

    holding: Holding
    waits: Sequence[NewWait]
    enough: Enough
    calls: Sequence[tuple[NewJobs, str, str | None]]
    child: NewExecution | None
    answer: Future[tuple[bool, list[Standing]]] = field(default_factory=Future)
    tried: bool = False


@dataclass(slots=True, eq=False)
class ReadRequest:
    """Fetch one large output."""

    execution_id: int
    step_id: str
    answer: Future[str | None] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class EndRequest:
    """Finish, fail or pause: ``write`` is one of the lifecycle's moves, bound to its arguments."""

    holding: Holding
    write: Callable[..., None]
    answer: Future[None] = field(default_factory=Future)
    tried: bool = False


Request = StepRequest | OpenRequest | ReadRequest | EndRequest


class Recorder(GroupWriter[Request]):
    """Answers each request when its write is committed. A request that was answered is not written again."""

    name = "recorder"

    def __init__(self, using: str, holdings: Holdings, ended: Callable[[], None] = lambda: None) -> None:
        super().__init__(using)
        self._ended = ended
        """Told when a turn has ended, or was parked."""
        self._holdings = holdings

    def write(self, group: list[Request]) -> None:
        """Steps first, together; then the rest in their order."""
        waiting = [request for request in group if not request.answer.done()]
        steps = [request for request in waiting if isinstance(request, StepRequest)]
        if steps:
            self._write_steps(steps)
        for request in waiting:
            if isinstance(request, OpenRequest):
                self._open(request)
            elif isinstance(request, EndRequest):
                self._end(request)
            elif isinstance(request, ReadRequest):
                request.answer.set_result(
                    read_output(request.execution_id, request.step_id, using=self.using)
                )

    def _write_steps(self, steps: list[StepRequest]) -> None:
        try:
            recorded = record([request.step for request in steps], using=self.using)
        except Exception as error:
            if is_outage(error):
                raise
            if len(steps) == 1:
                steps[0].answer.set_exception(error)
                return
            for request in steps:  # one step that the database refuses must not take the others along
                self._write_steps([request])
            return
        missing = [r for r in steps if (r.step.lease.pk, r.step.step_id) not in recorded]
        locked = still_held([r.step for r in missing], using=self.using) if missing else set()
        for request in steps:
            at = recorded.get((request.step.lease.pk, request.step.step_id))
            if at is not None:
                request.answer.set_result(at)
            elif request.step.lease.pk in locked:
                self.defer(request)
            else:
                self._lost(request)

    def _open(self, request: OpenRequest) -> None:
        tried, request.tried = request.tried, True
        try:
            answer = open_waits(
                request.holding.lease,
                request.waits,
                enough=request.enough,
                calls=request.calls,
                child=request.child,
                using=self.using,
            )
        except LeaseLost:
            # After an outage this may be our own park, whose answer was lost. Either way the body ends here.
            self._lost(request, quietly=tried)
        except Exception as error:
            if busy(error):
                self.defer(request)
                return
            if is_outage(error):
                raise
            request.answer.set_exception(error)
        else:
            self._ended()
            request.answer.set_result(answer)

    def _end(self, request: EndRequest) -> None:
        tried, request.tried = request.tried, True
        try:
            request.write(request.holding.lease, using=self.using)
        except LeaseLost:
            self._lost(request, quietly=tried)
        except Exception as error:
            if busy(error):
                self.defer(request)
                return
            if is_outage(error):
                raise
            logger.exception("execution=%s its end could not be written", request.holding.lease.pk)
            request.answer.set_exception(error)
        else:
            self._ended()
            request.answer.set_result(None)
        self._holdings.drop([request.holding])

    def _lost(self, request: Any, *, quietly: bool = False) -> None:
        lease = request.holding.lease
        request.holding.lost = True
        if not quietly:
            logger.warning("execution=%s worker=%s write refused: its lease is lost", lease.pk, lease.owner)
            signals.lease_lost.send_robust(None, label=lease.label, pk=lease.pk, worker=lease.owner)
        request.answer.set_exception(Stopped())
