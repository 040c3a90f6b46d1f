"""One turn of one execution: replay the body to where it waits, ends, or must stop, and hand that to the recorder."""

from __future__ import annotations

import datetime as dt
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NoReturn

from django.db import Error, connections, transaction

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import cut_off, passing, still_in_transaction
from pgjobs.databases import covering
from pgjobs.exceptions import CommitLost, Diverged, LeaseLost, TooManyCalls
from pgjobs.leases.fence import hold_in
from pgjobs.queue.enqueue import NewJobs
from pgjobs.worker import clock
from pgjobs.worker.deadlines import bounded
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.hygiene import clean_up
from pgjobs.worker.problems import describe
from pgjobs.worker.recorder import EndRequest, OpenRequest, ReadRequest, Recorder, StepRequest
from pgjobs.worker.service import RECONNECT
from pgjobs.workflows.durable import Enough, Recording
from pgjobs.workflows.journal import StepRow, record_here
from pgjobs.workflows.lifecycle import NewExecution, NewWait, Standing, fail, finish, pause, postpone
from pgjobs.workflows.models import Execution
from pgjobs.workflows.registry import Definition, workflows
from pgjobs.workflows.replay import Replay
from pgjobs.workflows.suspension import Continued, Stopped, Suspended

logger = logging.getLogger("pgjobs.worker")

_MOST_WARNINGS = 10


class Turns:
    """Runs turns in the slots' threads."""

    def __init__(
        self,
        *,
        using: str,
        recorder: Recorder,
        holdings: Holdings,
        confirm: Callable[[Holding], bool],
        parked: Callable[[float], None],
        stopping: threading.Event,
    ) -> None:
        self.using = using
        self.recorder = recorder
        self.confirm = confirm
        self.parked = parked
        """Told in how many seconds a new wait of this process is due."""
        self.stopping = stopping
        self._holdings = holdings

    def run(self, holding: Holding) -> None:
        """From claim to park or end."""
        self._holdings.begin(holding)
        definition = workflows.get(holding.execution.workflow_name)
        turn = Turn(self, holding)
        replay = Replay(holding.execution, turn)
        replay.history.tolerant = definition.on_divergence == "warn"
        began = clock.now()
        holding.body_thread, holding.called_at = threading.get_ident(), began
        try:
            self._run_body(definition, replay, turn, holding)
        finally:
            label, pk = holding.place
            clean_up(label, pk, holding.execution.workflow_name, ran=clock.now() - began)
            _warn(holding.lease.pk, replay.history.warnings)
        if replay.suspended or holding.lost:
            self._holdings.drop([holding])

    def _run_body(self, definition: Definition, replay: Replay, turn: Turn, holding: Holding) -> None:
        try:
            write = self._carry(definition, replay, turn, holding)
        except BaseException as error:
            write = _failure(definition, error)
        if replay.continued:
            write = self._continuation(definition, holding, replay.continued)
        if replay.halted:
            write = _failure(definition, replay.halted)
        # What a body does after it swallowed the exception that was to end the turn counts for nothing.
        if write is not None and not replay.suspended and not turn.stopped:
            self._end(holding, write)

    def _carry(
        self, definition: Definition, replay: Replay, turn: Turn, holding: Holding
    ) -> Callable[..., None] | None:
        """Call the body; how its end is written, or None when it has not come to one."""
        # With the first body comes all that a body may call.
        from pgjobs.workflows.async_context import run_body

        try:
            arguments = codec.loads(holding.execution.input)
            output = run_body(definition.function, replay, arguments)
            if not (replay.suspended or turn.stopped or replay.continued):
                replay.ended()
            text = None if output is None else encode_output(output)
            return functools.partial(finish, output=text, close_waits=bool(replay.history.warnings))
        except (Suspended, Stopped, Continued):
            return None

    def _end(self, holding: Holding, write: Callable[..., None]) -> None:
        if holding.lost:
            return
        holding.ended = True
        self.recorder.put(EndRequest(holding, write))

    def _continuation(
        self, definition: Definition, holding: Holding, continued: Continued
    ) -> Callable[..., None]:
        old = holding.execution
        new = NewExecution(
            workflow_name=old.workflow_name,
            version=definition.version,
            queue=old.queue,
            priority=old.priority,
            max_crashes=definition.max_crashes,
            input=continued.input,
            key=old.key,
            started_by=old.started_by,
            continued_from_id=old.lease.pk,
        )
        return functools.partial(finish, output=None, continued=new)


class Turn:
    """What one turn's context asks of this process (:class:`pgjobs.workflows.durable.Durable`)."""

    def __init__(self, turns: Turns, holding: Holding) -> None:
        self._turns = turns
        self._holding = holding
        self.stopped = False
        """The body was told to leave without a word. It stands even when the body catches the exception."""

    @property
    def should_stop(self) -> bool:
        """Whether a long step should end."""
        return self._holding.lost or self._holding.timed_out or self._turns.stopping.is_set()

    def check(self) -> None:
        """Raises ``Stopped`` when the execution is somebody else's, or could be."""
        holding = self._holding
        holding.called_at, holding.told = clock.now(), 0
        if holding.lost or (clock.now() > holding.good_until and not self._turns.confirm(holding)):
            holding.lost = True
        if holding.lost or self.stopped:
            self._stop()

    def before(self, step_id: str) -> None:
        """No step is begun without the lease, nor when the process is about to hand it back."""
        self.check()
        if self._turns.stopping.is_set():
            self._stop()

    def _stop(self) -> NoReturn:
        self.stopped = True
        raise Stopped

    def record(self, step: StepRow) -> dt.datetime:
        """Through the recorder, together with other executions' steps."""
        request = StepRequest(self._holding, step)
        self._turns.recorder.put(request)
        return request.answer.result()

    @contextmanager
    def recording(self, write: Callable[[Recording], None]) -> Iterator[None]:
        """On this thread's own connection, with the execution's row held from the start."""
        using, lease = self._turns.using, self._holding.lease
        connection = connections[using]
        committed: list[bool] = []
        session: Any = None
        lost = CommitLost(lease.pk, "execution", "ctx.atomic()")
        try:
            with ExitStack() as opened:
                number = hold_in(
                    opened, Execution, lease, using=using, keep_trying=lambda: self._holding.surely_held
                )
                session = connection.connection
                with covering(using, "ctx.atomic()", self._holding.execution.workflow_name):
                    yield
                if not still_in_transaction(using, session, number):
                    raise lost
                write(lambda step: record_here(replace(step, lease=lease), using=using))
                transaction.on_commit(lambda: committed.append(True), using=using)
        except LeaseLost:
            self._holding.lost = True
            raise Stopped from None
        except Error as error:
            if not passing(error) and not cut_off(error, session):
                raise
            self._break_off(error)
        if not committed:
            raise lost

    def _break_off(self, error: Exception) -> NoReturn:
        """End this turn for a fault that passes by itself. If the commit has landed, the next one finds its record."""
        delay = RECONNECT.delay(self._holding.execution.attempt)
        reason = f"turn {self._holding.execution.attempt} broke off: {error}"
        self._holding.ended = True
        self._turns.recorder.put(
            EndRequest(self._holding, functools.partial(postpone, reason=reason, delay=delay))
        )
        self._stop()

    def open(
        self,
        waits: Sequence[NewWait],
        enough: Enough,
        calls: Sequence[tuple[NewJobs, str, str | None]] = (),
        child: NewExecution | None = None,
    ) -> tuple[bool, list[Standing]]:
        """Through the recorder, one transaction each."""
        request = OpenRequest(self._holding, waits, enough, calls, child)
        self._turns.recorder.put(request)
        parked, standings = request.answer.result()
        # An instant may be near or past: the sweeper finds out, by the database's clock.
        delays = [0.0 for wait in waits if wait.at is not None]
        delays += [wait.delay for wait in waits if wait.delay is not None]
        if parked and delays:
            self._turns.parked(min(delays))
        return parked, standings

    def read_output(self, step_id: str) -> str | None:
        """Through the recorder."""
        request = ReadRequest(self._holding.lease.pk, step_id)
        self._turns.recorder.put(request)
        return request.answer.result()

    def pause_briefly(self, seconds: float) -> None:
        """In the thread; shutdown ends it."""
        if self._turns.stopping.wait(seconds):
            self._stop()

    def bounded(self, seconds: float | None, work: Callable[[], object]) -> object:
        """By an exception raised in this thread."""
        return bounded(self._holding, seconds, work)


def encode_output(output: Any) -> str:
    """A workflow's output as JSON text. Raises :class:`NotStorable`."""
    return codec.dumps(output, label="output", max_bytes=get_settings().max_result_bytes)


def _failure(definition: Definition, error: BaseException) -> Callable[..., None]:
    """How an error that left the body is written."""
    if isinstance(error, TooManyCalls):
        return functools.partial(pause, reason=str(error))
    if isinstance(error, Diverged) and definition.on_divergence != "fail":
        return functools.partial(pause, reason=f"the code diverged from the history at step {error}")
    return functools.partial(fail, problem=describe(error))


def _warn(pk: int, warnings: Sequence[str]) -> None:
    """Say where code and history part and it is tolerated; each turn tells it anew."""
    for warning in warnings[:_MOST_WARNINGS]:
        logger.warning("execution=%s diverged: %s", pk, warning)
    if len(warnings) > _MOST_WARNINGS:
        logger.warning("execution=%s diverged at %s more of its calls", pk, len(warnings) - _MOST_WARNINGS)
