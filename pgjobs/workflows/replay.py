"""The run in memory: counts the durable calls of a body, answers them from the history, and parks at a wait."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.exceptions import Diverged, DurableCallRefused, TooManyCalls
from pgjobs.queue.enqueue import NewJobs
from pgjobs.workflows.claiming import ClaimedExecution
from pgjobs.workflows.durable import Durable, Enough
from pgjobs.workflows.history import History, Record
from pgjobs.workflows.journal import StepRow
from pgjobs.workflows.lifecycle import NewExecution, NewWait, Standing
from pgjobs.workflows.suspension import Continued, Suspended
from pgjobs.workflows.values import Draws

logger = logging.getLogger("pgjobs.workflows")

_RESERVED = set("#[]~")
_MANY_UNKEYED = 20


class Replay:
    """One turn of one execution. Durable calls come one at a time, from the thread that runs the body."""

    def __init__(self, execution: ClaimedExecution, durable: Durable, *, dry: bool = False) -> None:
        self.execution = execution
        self.durable = durable
        self.history: History = execution.history
        self.suspended = False
        self.halted: Diverged | TooManyCalls | None = None
        """Why a person is needed, the first of all reasons. It stands even when the body catches the exception."""
        self.continued: Continued | None = None
        """The body has ended and goes on as new. It stands even when the body catches the exception."""
        self.latest = dt.datetime.fromisoformat(execution.created_at)
        """The instant of the latest record the body has seen."""
        self._dry = dry
        self._ordinal = 0
        self._occurrences: dict[str, int] = {}
        self._used: set[str] = set()
        self.changes: dict[str, bool] = {}
        """What ``ctx.changed`` has answered in this turn, by id."""
        self.draws = Draws(f"pgjobs:{execution.origin}")
        self._in_step: str | None = None
        self._thread = threading.get_ident()
        self._failure: StepRow | None = None
        self._crashed = execution.crash_count > 0

    def adopt_thread(self) -> None:
        """Durable calls will come from the present thread."""
        self._thread = threading.get_ident()

    def enter(self, call: str, name: str, key: str | None) -> tuple[str, int]:
        """Begin a durable call: its step id and ordinal.

        Raises :class:`DurableCallRefused` inside a step, a transaction, or another thread; ``Suspended`` again when
        the body swallowed the first; ``Stopped`` when the lease is lost.
        """
        label = f"ctx.{call}({name!r})"
        self._end_again(label)
        self._refuse_misplaced(label)
        self.durable.check()
        self._keep_failure()
        ordinal, self._ordinal = self._ordinal, self._ordinal + 1
        step_id = self._step_id(label, name, key)
        if step_id not in self.history.records and call != "continue_as_new":
            self._count(label, ordinal)
        return step_id, ordinal

    def _end_again(self, label: str) -> None:
        """A body that swallowed the end of its turn gets no further than here."""
        swallowed = "its suspension" if self.suspended else "ctx.continue_as_new()" if self.continued else ""
        if swallowed:
            logger.error(
                "execution=%s swallowed %s and went on to %s; do not catch BaseException in a workflow",
                self.execution.lease.pk,
                swallowed,
                label,
            )
        if self.suspended:
            raise Suspended
        if end := self.continued or self.halted:
            raise end

    def _count(self, label: str, ordinal: int) -> None:
        """Mind how long the history grows. A dry run is about the code, not about size."""
        settings = get_settings()
        if ordinal >= settings.workflow_max_calls and not self._dry:
            self.halted = TooManyCalls(label, settings.workflow_max_calls)
            raise self.halted
        if ordinal == settings.workflow_warn_calls:
            logger.warning(
                "execution=%s has made %s durable calls, and each turn replays them all; go on by "
                "ctx.continue_as_new(...) before %s, where it is paused",
                self.execution.lease.pk,
                ordinal,
                settings.workflow_max_calls,
            )

    def find(self, step_id: str, kind: str, ordinal: int, arguments_hash: str) -> Record | None:
        """The record of this call, or None. Raises :class:`Diverged`."""
        with self._noting_divergence():
            record = self.history.find(step_id, kind, ordinal, arguments_hash)
        if record is not None:
            self._saw(record)
        return record

    def skip_ordinal(self) -> None:
        """The call just entered leaves no record and takes no place."""
        self._ordinal -= 1

    def record(self, step: StepRow) -> None:
        """Write a new step, and remember it."""
        at = self.durable.record(step)
        self.remember(step, at)

    def remember(self, step: StepRow, at: dt.datetime) -> None:
        """Note a step that has just been written."""
        self._crashed = False
        record = Record(
            step.step_id, step.kind, step.ordinal, step.arguments_hash, at, step.output, step.error
        )
        self.history.add(record)
        self.history.find(step.step_id, step.kind, step.ordinal, step.arguments_hash)
        self._saw(record)

    def keep_failure_later(self, step: StepRow) -> None:
        """A step failed. It becomes history only if the body goes on: else a retry may run it again."""
        self._failure = step

    def ended(self) -> None:
        """The body returned: what it caught is history, and nothing of the history may be left over."""
        self._keep_failure()
        with self._noting_divergence():
            self.history.ended()

    def continue_as(self, continued: Continued) -> NoReturn:
        """The body ends here, successfully; nothing of the history may be left over."""
        self.ended()
        self.continued = continued
        raise continued

    def refuse(self, step_id: str, both_sides: str) -> None:
        """Raise :class:`Diverged` for a call that nothing recorded can answer."""
        with self._noting_divergence():
            self.history.refuse(step_id, both_sides)

    def wait(self, wait: NewWait, child: NewExecution | None = None) -> Record:
        """The resolved record of a single wait; parks and leaves the body when it is still open."""
        record = self.find(wait.step_id, wait.kind, wait.ordinal, wait.arguments_hash)
        if record is None and wait.four_eyes and not self.execution.started_by:
            logger.warning(
                "execution=%s asks %s of four eyes, but nobody is recorded as its starter, so anybody with the right "
                "may decide; pass start(actor=...)",
                self.execution.lease.pk,
                wait.step_id,
            )
        if record is None or not record.resolved:
            self.wait_all([wait], lambda standings: all(s.resolved for s in standings), child=child)
            self.find(wait.step_id, wait.kind, wait.ordinal, wait.arguments_hash)
        return self.history.records[wait.step_id]

    def wait_all(
        self,
        waits: Sequence[NewWait],
        enough: Enough,
        calls: Sequence[tuple[NewJobs, str, str | None]] = (),
        child: NewExecution | None = None,
    ) -> None:
        """Open ``waits`` (or find them open); leave the body unless there is ``enough`` to go on."""
        parked, standings = self.durable.open(waits, enough, calls, child)
        by_id = {wait.step_id: wait for wait in waits}
        for standing in standings:
            self._note(by_id[standing.step_id], standing)
        if parked:
            self.suspended = True
            raise Suspended

    def inside(self, step_id: str, work: Callable[[], object], timeout: float | None) -> object:
        """Run code of the user's as a step: durable calls in it are refused."""
        self.durable.before(step_id)
        with self._stepping(step_id):
            return self.durable.bounded(timeout, work)

    @contextmanager
    def recording(self, step_id: str, row: Callable[[], StepRow]) -> Iterator[None]:
        """A transaction on the body's connection that commits the block's writes with their checkpoint.

        Durable calls in the block are refused.
        """
        written: list[tuple[StepRow, dt.datetime]] = []

        def write(record: Callable[[StepRow], dt.datetime]) -> None:
            step = row()
            written.append((step, record(step)))

        with self._stepping(step_id), self.durable.recording(write):
            yield
        self.remember(*written[0])

    @contextmanager
    def _stepping(self, step_id: str) -> Iterator[None]:
        # A replay leaves the step out, and what it drew: so it draws from a source of its own, the same in
        # each attempt.
        outside, self.draws = self.draws, Draws(f"pgjobs:{self.execution.lease.pk}:{step_id}")
        self._in_step = step_id
        try:
            yield
        finally:
            self._in_step, self.draws = None, outside

    def row(
        self, step_id: str, kind: str, ordinal: int, arguments_hash: str, output: str | None, **more: object
    ) -> StepRow:
        """A step of this execution, to be recorded."""
        lease = self.execution.lease
        return StepRow(
            lease,
            step_id,
            kind,
            ordinal,
            arguments_hash,
            output,
            clears_crashes=self._crashed,
            **more,  # type: ignore[arg-type]
        )

    def output(self, record: Record) -> str | None:
        """The recorded output as JSON text, fetched now if it was too large to come with the rest."""
        if record.deferred:
            record.output, record.deferred = self.durable.read_output(record.step_id), False
        return record.output

    @contextmanager
    def _noting_divergence(self) -> Iterator[None]:
        try:
            yield
        except Diverged as error:
            self.halted = self.halted or error
            raise

    def _note(self, wait: NewWait, standing: Standing) -> None:
        record = Record(
            wait.step_id, wait.kind, wait.ordinal, wait.arguments_hash, standing.at, standing.resolution
        )
        record.is_wait, record.resolved = True, standing.resolved
        record.wait_id, record.group = standing.wait_id, wait.group
        self.history.add(record)

    def _keep_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            self.record(failure)

    def _saw(self, record: Record) -> None:
        # A failure is recorded only when the body goes on, and the waits between attempts are no calls of the
        # body's: a replay would see their instants earlier than the first run did, or not at all.
        if record.at is not None and record.resolved and record.error is None and not record.group:
            self.latest = max(self.latest, record.at)

    def _refuse_misplaced(self, label: str) -> None:
        if self._in_step is not None:
            raise DurableCallRefused(
                label,
                f"it is called inside step {self._in_step!r}, whose own record would then hold another's",
                "Return from the step first; steps are siblings, not nested.",
            )
        if threading.get_ident() != self._thread:
            raise DurableCallRefused(
                label,
                "it is called from another thread than the body's, so its place in the history is chance",
                "Call it in the body; run work in parallel with ctx.gather.",
            )
        if not self._dry and any(map(_in_transaction, connections.all(initialized_only=True))):
            raise DurableCallRefused(
                label,
                "it is called inside a transaction of your own, which could still be rolled back",
                "Leave the atomic() block first, or use ctx.atomic() to commit writes with their checkpoint.",
            )

    def _step_id(self, label: str, name: str, key: str | None) -> str:
        if not isinstance(name, str) or not 0 < len(name) <= 150 or _RESERVED & set(name):
            raise DurableCallRefused(
                label, "a step's name has 1 to 150 characters and none of # [ ] ~", "Give another name=."
            )
        codec.check_text(f"{name}{key or ''}", label)
        if key is None:
            count = self._occurrences[name] = self._occurrences.get(name, 0) + 1
            if count == _MANY_UNKEYED + 1:
                logger.warning(
                    "execution=%s calls %s more than %s times; give key= in loops, so that a changed order is no "
                    "divergence",
                    self.execution.lease.pk,
                    label,
                    _MANY_UNKEYED,
                )
            return f"{name}#{count}"
        step_id = f"{name}[{key}]"
        if len(str(key)) > 120:
            raise DurableCallRefused(label, "key= has at most 120 characters", "Shorten or hash it.")
        if step_id in self._used:
            raise DurableCallRefused(
                label,
                f"key={key!r} was used before under this name",
                "Keys name one call each; give another.",
            )
        self._used.add(step_id)
        return step_id


def _in_transaction(connection: BaseDatabaseWrapper) -> bool:
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)
