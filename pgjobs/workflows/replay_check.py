"""Would the present code still carry every unfinished execution? Each is replayed dry, to the end of its history.

A dry replay answers recorded calls from the history and stops at the first call that is not recorded: no step runs.
The body's own database writes are rolled back. It runs in a thread of its own, so that it can be given up.
"""

from __future__ import annotations

import ast
import asyncio
import ctypes
import inspect
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from queue import SimpleQueue
from typing import Any, NoReturn

from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import OUTAGE, release_handler_connections, rows
from pgjobs.exceptions import Diverged, UnknownWorkflow
from pgjobs.leases.states import Lease
from pgjobs.workflows.async_context import AsyncWorkflowContext
from pgjobs.workflows.claiming import ClaimedExecution
from pgjobs.workflows.context import WorkflowContext
from pgjobs.workflows.history import load, read_output
from pgjobs.workflows.registry import Definition, workflows
from pgjobs.workflows.replay import Replay
from pgjobs.workflows.suspension import Continued, Stopped, Suspended

PROBLEMS = ("diverged", "unknown", "raised", "unfinished")
"""What a dry replay can find. ``raised``: the body raises before it comes to new work; ``unfinished``: in time."""

_BATCH = 50
_LAST_WORDS_SECONDS = 1.0  # for a body that was interrupted, before its thread is left to itself

# Each half is served by a partial index; a plain IN would read all the finished executions too.
_IDS = """
SELECT id FROM (
    SELECT id, workflow_name FROM pgjobs_execution WHERE status = 'enqueued' AND crash_count = 0
    UNION ALL SELECT id, workflow_name FROM pgjobs_execution WHERE status = 'enqueued' AND crash_count > 0
    UNION ALL SELECT id, workflow_name FROM pgjobs_execution WHERE status = 'waiting'
    UNION ALL SELECT id, workflow_name FROM pgjobs_execution WHERE status = 'running'
    UNION ALL SELECT id, workflow_name FROM pgjobs_execution WHERE status = 'paused'
) AS unfinished
WHERE %(names)s::text[] IS NULL OR workflow_name = ANY(%(names)s::text[])
ORDER BY id LIMIT %(limit)s"""

_EXECUTIONS = """
SELECT id, status, workflow_name, version, key, input::text, attempt_count + 1, crash_count, queue, priority,
       started_by, COALESCE(origin_at, created_at)::text, COALESCE(origin_id, id)
FROM pgjobs_execution
WHERE id = ANY(%(ids)s::bigint[]) AND status IN ('enqueued', 'waiting', 'running', 'paused') ORDER BY id"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with one execution under the present code."""

    execution: int
    workflow: str
    status: str
    problem: str
    """One of :data:`PROBLEMS`, or ``tolerated``: a divergence of a workflow with ``on_divergence="warn"``."""
    step: str
    """The step id at which history and code part, where there is one."""
    detail: str
    """Both sides of a divergence; the error of a body that raised."""


@dataclass(slots=True)
class Report:
    """What came of a check."""

    checked: int = 0
    findings: list[Finding] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Findings by problem, those that did not occur included."""
        found = Counter(finding.problem for finding in self.findings)
        return {problem: found[problem] for problem in (*PROBLEMS, "tolerated")}

    def as_dict(self) -> dict[str, Any]:
        """As it is written to JSON."""
        told = [asdict(finding) for finding in self.findings]
        return {"checked": self.checked, "counts": self.counts(), "findings": told}


def check(
    *,
    names: Sequence[str] | None = None,
    limit: int | None = None,
    seconds: float = 5.0,
    found: Callable[[Finding], object] = lambda finding: None,
) -> Report:
    """Replay unfinished executions dry, the oldest first; ``seconds`` is the most that one body may take.

    ``found`` is called with each finding as it comes.
    """
    using = get_settings().database
    ids = [pk for (pk,) in rows(using, _IDS, {"names": list(names) if names else None, "limit": limit})]
    report = Report()
    stage = _Stage(seconds, [alias for alias in connections if _reachable(alias)])
    try:
        for first in range(0, len(ids), _BATCH):
            for status, execution in _load(ids[first : first + _BATCH], using):
                report.checked += 1
                for finding in _judged(stage, status, execution, using):
                    report.findings.append(finding)
                    found(finding)
    finally:
        stage.close()
    return report


def _load(ids: list[int], using: str) -> Iterator[tuple[str, ClaimedExecution]]:
    """Executions with their histories, all from one snapshot: a running one writes its history meanwhile."""
    connection = connections[using]
    nested = connection.in_atomic_block
    with transaction.atomic(using=using):
        if not nested:
            rows(using, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", {})
        found = rows(using, _EXECUTIONS, {"ids": ids})
        histories = load([row[0] for row in found], using=using)
    for pk, status, *rest in found:
        lease = Lease(pk, uuid.uuid4(), "replay check", "execution")
        yield status, ClaimedExecution(lease, histories[pk], *rest)


def _judged(stage: _Stage, status: str, execution: ClaimedExecution, using: str) -> Iterator[Finding]:
    def finding(problem: str, detail: str) -> Finding:
        step, both_sides = _parted(detail) if problem in ("diverged", "tolerated") else ("", detail)
        return Finding(execution.lease.pk, execution.workflow_name, status, problem, step, both_sides)

    try:
        definition = workflows.get(execution.workflow_name)
    except UnknownWorkflow as error:
        yield finding("unknown", str(error))
        return
    execution.history.tolerant = definition.on_divergence == "warn"
    trial = _Trial(definition, execution, using)
    try:
        stage.perform(trial)
    except _Late:
        yield finding(
            "unfinished",
            f"its body came to no durable call that is new within {stage.seconds:g} s; "
            f"slow or blocking work belongs in a step.",
        )
    except Diverged as error:
        yield finding("diverged", str(error))
    except Exception as error:
        yield finding("raised", codec.storable_text(f"{type(error).__qualname__}: {error}", 2_000))
    for warning in execution.history.warnings:
        yield finding("tolerated", warning)


_STEP = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"): (.*)""", re.DOTALL)


def _parted(told: str) -> tuple[str, str]:
    """A divergence's text as step id and the rest."""
    match = _STEP.fullmatch(told)
    return (ast.literal_eval(match[1]), match[2]) if match else ("", told)


class _Dry:
    """Carries nothing: what is not recorded ends the replay (:class:`pgjobs.workflows.durable.Durable`)."""

    should_stop = False

    def __init__(self, execution_id: int, using: str) -> None:
        self._execution_id = execution_id
        self._using = using
        self.stopped = False

    def check(self) -> None:
        # A body that swallowed the first stop gets no further than its next durable call.
        if self.stopped:
            raise Stopped

    def before(self, step_id: str) -> None:
        self._stop()

    def record(self, step: object) -> NoReturn:
        self._stop()

    def recording(self, write: object) -> AbstractContextManager[None]:
        self._stop()

    def open(self, waits: object, enough: object, calls: object = (), child: object = None) -> NoReturn:
        self._stop()

    def read_output(self, step_id: str) -> str | None:
        return read_output(self._execution_id, step_id, using=self._using)

    def pause_briefly(self, seconds: float) -> None:
        self._stop()

    def bounded(self, seconds: float | None, work: Callable[[], object]) -> object:
        return work()

    def _stop(self) -> NoReturn:
        self.stopped = True
        raise Stopped


class _Late(BaseException):
    """Raised in a body whose time is up."""


class _Trial:
    """One execution's dry replay."""

    def __init__(self, definition: Definition, execution: ClaimedExecution, using: str) -> None:
        self._definition = definition
        self._execution = execution
        self._dry = _Dry(execution.lease.pk, using)
        self.thread_id: int | None = None
        """The thread that runs the body's own code, while it does."""

    def run(self, seconds: float, aliases: list[str]) -> None:
        """Replay, with the body's writes to ``aliases`` rolled back.

        Raises :class:`Diverged`, or what the body raises before it comes to new work.
        """
        replay = Replay(self._execution, self._dry, dry=True)
        try:
            arguments = codec.loads(self._execution.input)
            with _rolled_back(aliases):
                self._run_body(replay, arguments, seconds)
            if not self._dry.stopped and not replay.continued:
                replay.ended()
        except (Suspended, Stopped, Continued):
            pass
        except _Late:
            raise
        except BaseException:
            if not self._dry.stopped and not replay.halted and not replay.continued:
                raise
        if replay.halted:
            raise replay.halted

    def _run_body(self, replay: Replay, arguments: dict[str, Any], seconds: float) -> None:
        context = WorkflowContext(replay)
        function = self._definition.function
        self.thread_id = threading.get_ident()
        if not inspect.iscoroutinefunction(function):
            function(context, **arguments)
            return
        with ThreadPoolExecutor(1, "pgjobs-engine", initializer=replay.adopt_thread) as engine:

            async def body() -> None:
                self.thread_id = threading.get_ident()
                try:
                    async with asyncio.timeout(seconds) as limit:
                        await function(AsyncWorkflowContext(context, engine), **arguments)
                except TimeoutError:
                    if limit.expired():
                        raise _Late from None
                    raise
                finally:
                    self.thread_id = None

            try:
                # So that the body's ORM calls come to this thread, into the transactions that are rolled back.
                async_to_sync(body)()
            finally:
                engine.submit(release_handler_connections)


class _Stage:
    """The thread that bodies run in. One that does not come back is left behind, and another takes its place."""

    def __init__(self, seconds: float, aliases: list[str]) -> None:
        self.seconds = seconds
        self._aliases = aliases
        self._work: SimpleQueue[Callable[[], None] | None] | None = None

    def perform(self, trial: _Trial) -> None:
        """Run a trial. Raises what it raises, or :class:`_Late`."""
        answer: Future[None] = Future()
        if self._work is None:
            self._work = SimpleQueue()
            threading.Thread(target=_act, args=(self._work,), name="pgjobs-replay", daemon=True).start()
        self._work.put(lambda: _answer(answer, trial, self.seconds, self._aliases))
        try:
            error = answer.exception(self.seconds)
        except TimeoutError:
            self.close()  # an interruption that comes late must not hit the next trial
            _interrupt(trial)
            try:
                error = answer.exception(_LAST_WORDS_SECONDS)
            except TimeoutError:
                error = None
            error = error if isinstance(error, Diverged) else _Late()
        if error is not None:
            raise error

    def close(self) -> None:
        """Let the thread end when it can."""
        if self._work is not None:
            self._work.put(None)
            self._work = None


def _act(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    try:
        while (work := queue.get()) is not None:
            work()
    except _Late:
        pass
    finally:
        release_handler_connections()


def _answer(answer: Future[None], trial: _Trial, seconds: float, aliases: list[str]) -> None:
    try:
        trial.run(seconds, aliases)
    except BaseException as error:
        release_handler_connections()
        answer.set_exception(error)
    else:
        answer.set_result(None)


def _interrupt(trial: _Trial) -> None:
    if trial.thread_id is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(trial.thread_id), ctypes.py_object(_Late))


def _reachable(alias: str) -> bool:
    """What cannot be reached cannot be written to, and must not cost each execution a try."""
    try:
        connections[alias].ensure_connection()
    except (*OUTAGE, ImproperlyConfigured):
        return False
    return True


@contextmanager
def _rolled_back(aliases: list[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for alias in aliases:
            stack.enter_context(transaction.atomic(using=alias))
        try:
            yield
        finally:
            for alias in aliases:
                transaction.set_rollback(True, using=alias)
