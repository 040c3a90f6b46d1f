"""What workflow authors are given as ``ctx``: every durable call there is."""

from __future__ import annotations

import datetime as dt
import hashlib
import inspect
import json
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.utils import timezone

from pgjobs import codec
from pgjobs.backoff import Backoff
from pgjobs.conf import get_settings
from pgjobs.exceptions import (
    ApprovalTimeout,
    ExecutionFailed,
    InvalidOption,
    SignatureMismatch,
    WaitTimeout,
)
from pgjobs.queue.authoring import JobCall, JobType
from pgjobs.workflows.atomic import AtomicBlock, run_atomic
from pgjobs.workflows.fanout import gather
from pgjobs.workflows.history import hash_arguments
from pgjobs.workflows.lifecycle import NewExecution, NewWait
from pgjobs.workflows.registry import workflows
from pgjobs.workflows.replay import Replay
from pgjobs.workflows.states import OnTimeout, StepKind, WaitKind
from pgjobs.workflows.stepping import run_step
from pgjobs.workflows.suspension import Continued
from pgjobs.workflows.values import Decision, Gathered

_UNSET: Any = object()
_LONGEST = dt.timedelta(days=366 * 10)
Duration = dt.timedelta | float


class WorkflowContext:
    """One turn of one execution, seen from its body. Calls marked durable are recorded and never made twice."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    @property
    def execution_id(self) -> int:
        """The execution's id."""
        return self._replay.execution.lease.pk

    @property
    def key(self) -> str | None:
        """The key given at start."""
        return self._replay.execution.key

    @property
    def version(self) -> int:
        """The workflow's version when the execution was started."""
        return self._replay.execution.version

    @property
    def attempt(self) -> int:
        """Number of this turn, 1 for the first."""
        return self._replay.execution.attempt

    @property
    def lease(self) -> str:
        """A value no other turn has; hand it to other systems as fencing value."""
        return f"{self.execution_id}-{self._replay.execution.lease.token}"

    @property
    def should_stop(self) -> bool:
        """Whether a long step should come to an end: the worker shuts down or the lease is lost."""
        return self._replay.durable.should_stop

    # Values that replays agree on, without a row

    def now(self) -> dt.datetime:
        """The instant of the latest record the body has seen (at first: of the start), by the database's clock."""
        return self._replay.latest

    def uuid(self) -> uuid.UUID:
        """A new UUID, the same in every replay; inside a step, the same in each of its attempts."""
        return self._replay.draws.uuid()

    @property
    def random(self) -> random.Random:
        """A generator that gives the same numbers in every replay; a step has one of its own."""
        return self._replay.draws.random

    # Steps

    def step(
        self,
        function: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Backoff | None = None,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> Any:
        """Durable: run ``function(*args, **kwargs)`` once and return what it returned, as it came back from JSON.

        It runs at least once: a worker may die between its effect and its record. Named after the function, or
        ``name``; give ``key`` in loops. ``retry`` is a Backoff with ``attempts``. Raises :class:`StepFailed`.
        """
        if retry is not None and not isinstance(retry, Backoff):
            raise InvalidOption("retry", retry, "give a Backoff, such as Backoff(base=1, attempts=3).")
        limit = _optional_seconds(timeout)
        if limit == 0:
            raise InvalidOption("timeout", timeout, "give more than 0 seconds.")
        return run_step(self._replay, function, args, kwargs, name=name, key=key, retry=retry, timeout=limit)

    def atomic(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        /,
        *args: Any,
        key: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Durable: database writes that commit with their checkpoint, so they land once.

        ``with ctx.atomic("name") as step:`` runs its block, or leaves it out when it was recorded;
        ``ctx.atomic("name", function, ...)`` calls a function and returns its output.
        """
        if function is None:
            return AtomicBlock(self._replay, name, key)
        return run_atomic(self._replay, name, key, function, args, kwargs)

    # Waits

    def sleep(
        self, name: str | Duration, duration: Duration | None = None, *, key: str | None = None
    ) -> None:
        """Durable: wait in one row, however long. The end is computed once, by the database."""
        if duration is None:
            name, duration = "sleep", name  # type: ignore[assignment]
        seconds = _seconds("duration", duration)
        step_id, ordinal = self._replay.enter("sleep", str(name), key)
        self._replay.wait(
            NewWait(step_id, WaitKind.SLEEP.value, ordinal, hash_arguments(seconds), delay=seconds)
        )

    def sleep_until(self, name: str, when: dt.datetime, *, key: str | None = None) -> None:
        """Durable: wait until an instant (aware datetime). One in the past does not wait."""
        if not isinstance(when, dt.datetime) or timezone.is_naive(when):
            raise InvalidOption("when", when, "give an aware datetime; a naive time is no instant.")
        if not 1970 <= when.year <= 9000:
            raise InvalidOption("when", when, "give an instant between the years 1970 and 9000.")
        step_id, ordinal = self._replay.enter("sleep_until", name, key)
        self._replay.wait(
            NewWait(step_id, WaitKind.SLEEP.value, ordinal, hash_arguments(when), at=when.isoformat())
        )

    def wait_signal(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        default: Any = _UNSET,
        key: str | None = None,
    ) -> Any:
        """Durable: the payload of the next signal of that name, whether it came before or comes now.

        Raises :class:`WaitTimeout` after ``timeout``, or returns ``default`` when one is given.
        """
        step_id, ordinal = self._replay.enter("wait_signal", name, key)
        wait = NewWait(step_id, WaitKind.SIGNAL.value, ordinal, name=name, delay=_optional_seconds(timeout))
        resolution = self._replay.wait(wait).resolution()
        if "payload" in resolution:
            return resolution["payload"]
        if default is not _UNSET:
            return default
        raise WaitTimeout(step_id)

    def approval(
        self,
        title: str,
        *,
        permission: str = "",
        groups: Sequence[str] = (),
        users: Sequence[Any] = (),
        context: Any = None,
        timeout: Duration | None = None,
        on_timeout: str = "reject",
        quorum: int = 1,
        four_eyes: bool = False,
        key: str | None = None,
    ) -> Decision:
        """Durable: ask people. ``context`` is what they are shown; a permission, groups or users say who may decide.

        With ``four_eyes`` the starter may not. When nobody decided in time: ``on_timeout`` "reject", "approve", or
        "raise" (:class:`ApprovalTimeout`).
        """
        if on_timeout not in OnTimeout.values:
            raise InvalidOption("on_timeout", on_timeout, f"give one of {', '.join(OnTimeout.values)}.")
        if isinstance(quorum, bool) or not isinstance(quorum, int) or not 1 <= quorum <= 100:
            raise InvalidOption("quorum", quorum, "give a whole number from 1 to 100.")
        step_id, ordinal = self._replay.enter("approval", title, key)
        shown = _stored(f"context of {step_id}", context)
        wait = NewWait(
            step_id,
            WaitKind.APPROVAL.value,
            ordinal,
            hash_arguments(title, shown),
            name=title,
            delay=_optional_seconds(timeout),
            permission=permission,
            groups=[str(group) for group in groups],
            users=[str(getattr(user, "pk", user)) for user in users],
            context=shown,
            context_hash=_shown_hash(title, shown),
            on_timeout=on_timeout,
            quorum=quorum,
            four_eyes=four_eyes,
        )
        return _decision(step_id, self._replay.wait(wait).resolution(), on_timeout)

    # Other work

    def gather(
        self,
        calls: Iterable[JobCall],
        *,
        name: str = "gather",
        key: str | None = None,
        min_successful: int | None = None,
        tolerated_failures: int = 0,
        timeout: Duration | None = None,
    ) -> Gathered:
        """Durable: run jobs of the queue in parallel and return their results in the order of the calls.

        Holds no slot while it waits. It goes on when all have ended; with ``min_successful`` as soon as so many have
        succeeded, and the others run on unheeded. Where a job did not succeed, or was not waited for, the result is
        None and ``failures`` of the answer names it. A job that has not ended after ``timeout`` counts as failed.

        Raises :class:`JobsFailed` as soon as more than ``tolerated_failures`` have failed; with ``min_successful``,
        which replaces that rule, as soon as so many cannot succeed any more; :class:`WaitTimeout` instead when all
        that failed are late. Raises :class:`InvalidOption` for more than WORKFLOW_MAX_GATHER calls.
        """
        return gather(
            self._replay,
            list(calls),
            name=name,
            key=key,
            min_successful=min_successful,
            tolerated_failures=tolerated_failures,
            timeout=_optional_seconds(timeout),
        )

    def map(self, job_type: JobType, payloads: Iterable[Mapping[str, Any]], **options: Any) -> Gathered:
        """Durable: :meth:`gather` of one job type over many payloads."""
        options.setdefault("name", job_type.job_type.rpartition(".")[2])
        return self.gather([job_type.s(**payload) for payload in payloads], **options)

    def job(self, call: JobCall, *, name: str | None = None, key: str | None = None, **options: Any) -> Any:
        """Durable: run one job of the queue and return its result.

        Raises :class:`JobsFailed`, or :class:`WaitTimeout` when it has not ended after ``timeout``.
        """
        name = name or call.type.job_type.rpartition(".")[2]
        return self.gather([call], name=name, key=key, **options)[0]

    def child(
        self,
        workflow: Any,
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        timeout: Duration | None = None,
        **input: Any,
    ) -> Any:
        """Durable: run another workflow and return its output. Raises :class:`ExecutionFailed`."""
        new: NewExecution = workflow.new(args, input, parent=self._replay.execution)
        step_id, ordinal = self._replay.enter("child", name or new.workflow_name, key)
        wait = NewWait(
            step_id,
            WaitKind.CHILD.value,
            ordinal,
            hash_arguments(new.workflow_name, new.input),
            name=new.workflow_name,
            delay=_optional_seconds(timeout),
        )
        resolution = self._replay.wait(wait, child=new).resolution()
        if resolution.get("status") == "succeeded":
            return resolution.get("result")
        if resolution.get("timeout"):
            raise WaitTimeout(step_id)
        told = resolution.get("status", "cancelled")
        raise ExecutionFailed(resolution.get("execution_id", 0), told, resolution.get("error", ""))

    # Changes of code and of size

    def changed(self, id: str) -> bool:
        """Durable: whether this execution takes the changed path. False for those that passed here before the change.

        Lets old executions end on the old path while new ones take the new one. Asked again, it answers the same.
        """
        changes = self._replay.changes
        if id not in changes:
            changes[id] = self._changed(id)
        return changes[id]

    def _changed(self, id: str) -> bool:
        step_id, ordinal = self._replay.enter("changed", id, "changed")
        kind = StepKind.CHANGED.value
        if step_id not in self._replay.history.records and self._replay.history.beyond(ordinal):
            self._replay.skip_ordinal()
            return False
        if self._replay.find(step_id, kind, ordinal, "") is None:
            self._replay.record(self._replay.row(step_id, kind, ordinal, "", "true"))
        return True

    def continue_as_new(self, **input: Any) -> None:
        """End here, successfully, and go on as a new execution with a short history and the same key.

        Raises :class:`SignatureMismatch` or :class:`NotStorable`; then nothing has ended.
        """
        self._replay.enter("continue_as_new", "continue_as_new", None)
        name = self._replay.execution.workflow_name
        signature = inspect.signature(workflows.get(name).function)
        try:
            signature.bind(self, **input)
        except TypeError as error:
            raise SignatureMismatch(name, str(signature), str(error), "Nothing has ended.") from None
        text = codec.dumps(input, label="input", max_bytes=get_settings().max_payload_bytes)
        self._replay.continue_as(Continued(text))


def _decision(step_id: str, resolution: dict[str, Any], on_timeout: str) -> Decision:
    timed_out = bool(resolution.get("timeout"))
    if timed_out and on_timeout == OnTimeout.RAISE.value:
        raise ApprovalTimeout(step_id)
    at = resolution.get("at")
    return Decision(
        approved=bool(resolution.get("approved")),
        by=resolution.get("by") or None,
        at=dt.datetime.fromisoformat(at) if isinstance(at, str) else at,
        reason=resolution.get("reason") or "",
        data=resolution.get("data"),
        timed_out=timed_out,
    )


def _stored(label: str, value: Any) -> Any:
    """``value`` as plain JSON. Raises :class:`NotStorable`."""
    return json.loads(codec.dumps(value, label=label, max_bytes=get_settings().max_payload_bytes))


def _shown_hash(title: str, shown: Any) -> str:
    text = json.dumps([title, shown], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _seconds(option: str, value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, dt.timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidOption(option, value, "give a timedelta or seconds.")
    if not 0 <= seconds <= _LONGEST.total_seconds():
        raise InvalidOption(option, value, "give 0 to ten years.")
    return float(seconds)


def _optional_seconds(value: Any) -> float | None:
    return None if value is None else _seconds("timeout", value)
