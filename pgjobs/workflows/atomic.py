"""Atomic steps: ORM writes and their checkpoint in one commit; when the checkpoint is there, the block is left out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from django.db import Error

from pgjobs import codec
from pgjobs.exceptions import DurableCallRefused, StepFailed
from pgjobs.workflows.history import hash_arguments
from pgjobs.workflows.journal import StepRow
from pgjobs.workflows.replay import Replay
from pgjobs.workflows.skipping import BlockSkipped, Skipper, is_empty, misuse
from pgjobs.workflows.states import StepKind
from pgjobs.workflows.stepping import encode_output, failure, value_of
from pgjobs.workflows.values import AtomicStep

_KIND = StepKind.ATOMIC.value


class AtomicBlock:
    """``with ctx.atomic("name") as step:``. Set ``step.output`` to what the body goes on with."""

    def __init__(self, replay: Replay, name: str, key: str | None) -> None:
        self._replay = replay
        self._name = name
        self._key = key
        self._step = AtomicStep()
        self._skipper: Skipper | None = None
        self._transaction: AbstractContextManager[None] | None = None
        self._place = ("", 0)

    def __enter__(self) -> AtomicStep:
        frame = sys._getframe(1)
        if refused := misuse(frame):
            raise DurableCallRefused(f"ctx.atomic({self._name!r})", *refused)
        self._place = step_id, ordinal = self._replay.enter("atomic", self._name, self._key)
        record = self._replay.find(step_id, _KIND, ordinal, "")
        if record is not None:
            self._step.output = value_of(self._replay, record)
            if not is_empty(frame):
                self._skipper = Skipper(frame)
                self._skipper.arm()
            return self._step
        self._replay.durable.before(step_id)
        self._transaction = self._replay.recording(step_id, self._row)
        try:
            self._transaction.__enter__()
        except Error as failed:
            raise self._failure(failed) from failed
        return self._step

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._skipper is not None:
            self._skipper.disarm()
            return kind is BlockSkipped
        if self._transaction is None:  # an empty block, recorded
            return False
        try:
            self._transaction.__exit__(kind, error, trace)
        except Exception as failed:
            raise self._failure(failed) from failed
        if isinstance(error, Exception):
            raise self._failure(error) from error
        if error is None:
            self._settle()
        return False

    def _failure(self, error: Exception) -> StepFailed:
        step_id, ordinal = self._place
        return failure(self._replay, step_id, StepKind.ATOMIC, ordinal, "", error)

    def _row(self) -> StepRow:
        step_id, ordinal = self._place
        return self._replay.row(step_id, _KIND, ordinal, "", encode_output(step_id, self._step.output))

    def _settle(self) -> None:
        # What the body sees now is what every replay will see: the value as it came back from JSON.
        self._step.output = value_of(self._replay, self._replay.history.records[self._place[0]])


def run_atomic(
    replay: Replay,
    name: str,
    key: str | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The same for a function: its return value is the output."""
    step_id, ordinal = replay.enter("atomic", name, key)
    arguments_hash = hash_arguments(args, kwargs)
    record = replay.find(step_id, _KIND, ordinal, arguments_hash)
    if record is not None:
        return value_of(replay, record)
    replay.durable.before(step_id)
    texts: list[str] = []
    try:
        with replay.recording(step_id, lambda: replay.row(step_id, _KIND, ordinal, arguments_hash, texts[0])):
            texts.append(encode_output(step_id, function(*args, **kwargs)))
    except Exception as error:
        raise failure(replay, step_id, StepKind.ATOMIC, ordinal, arguments_hash, error) from error
    return codec.loads(texts[0])
