"""Steps: run once more until they are recorded, with retries that wait in the row rather than in a thread."""

from __future__ import annotations

import datetime as dt
import json
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pgjobs import codec
from pgjobs.backoff import MAX_DELAY_SECONDS, Backoff
from pgjobs.conf import get_settings
from pgjobs.exceptions import (
    DurableCallRefused,
    Fail,
    InvalidOption,
    JobTimeout,
    LeaseLost,
    NotStorable,
    Retry,
    Snooze,
    StepFailed,
)
from pgjobs.workflows.history import Record, hash_arguments
from pgjobs.workflows.lifecycle import NewWait
from pgjobs.workflows.replay import Replay
from pgjobs.workflows.states import StepKind, WaitKind

_SHORT_DELAY = 1.0  # a longer delay parks the execution instead of holding its slot
_DEFAULT_ATTEMPTS = 5
_RETRY_MARK = "~retry"  # in the id of the wait after an attempt, before the attempt's number
_NO_RETRY = Backoff(attempts=1)


def run_step(
    replay: Replay,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    name: str | None,
    key: str | None,
    retry: Backoff | None,
    timeout: float | None,
) -> Any:
    """The output of a step: recorded, or run now and recorded."""
    name = name or str(getattr(function, "__name__", ""))
    step_id, ordinal = replay.enter("step", name, key)
    arguments_hash = hash_arguments(args, kwargs)
    record = replay.find(step_id, StepKind.STEP.value, ordinal, arguments_hash)
    if record is not None:
        return value_of(replay, record)
    text, attempts, seconds = _attempts(
        replay,
        step_id,
        ordinal,
        arguments_hash,
        lambda: function(*args, **kwargs),
        retry or _NO_RETRY,
        timeout,
    )
    replay.record(
        replay.row(
            step_id,
            StepKind.STEP.value,
            ordinal,
            arguments_hash,
            text,
            attempts=attempts,
            seconds=seconds,
        )
    )
    return codec.loads(text)


def value_of(replay: Replay, record: Record) -> Any:
    """What a recorded step answers: its output, or its failure raised again."""
    if record.error is not None:
        told = json.loads(record.error)
        raise StepFailed(record.step_id, told["type"], told["message"], told.get("attempts", 1))
    text = replay.output(record)
    return None if text is None else codec.loads(text)


def encode_output(step_id: str, value: Any) -> str:
    """``value`` as JSON text. Raises :class:`NotStorable` before anything is recorded as done."""
    return codec.dumps(value, label=f"output of {step_id}", max_bytes=get_settings().max_result_bytes)


def _attempts(
    replay: Replay,
    step_id: str,
    ordinal: int,
    arguments_hash: str,
    work: Callable[[], Any],
    retry: Backoff,
    timeout: float | None,
) -> tuple[str, int, float]:
    """Run until it works or the attempts are used up: (output, attempts, seconds of the last)."""
    most = retry.attempts or _DEFAULT_ATTEMPTS
    attempt = 1 + _attempts_made(replay, step_id)
    failed = partial(failure, replay, step_id, StepKind.STEP, ordinal, arguments_hash)
    while True:
        began = time.monotonic()
        try:
            value = replay.inside(step_id, work, timeout)
            return encode_output(step_id, value), attempt, time.monotonic() - began
        except LeaseLost:
            raise
        except Snooze as error:
            refused = DurableCallRefused(
                f"Snooze in step {step_id!r}",
                "a step has no place in a queue to give back",
                "Raise Retry(after=...) and give the step retry=, or return and ctx.sleep() in the body.",
            )
            raise failed(refused, attempt) from error
        except Exception as error:
            if attempt >= most or isinstance(error, Fail | NotStorable):
                raise failed(error, attempt) from error
            try:
                delay = _delay(retry, attempt, error)
            except InvalidOption as refused:
                raise failed(refused, attempt) from error
        if delay > _SHORT_DELAY:
            replay.wait(
                NewWait(
                    f"{step_id}{_RETRY_MARK}{attempt}",
                    WaitKind.SLEEP.value,
                    ordinal,
                    delay=delay,
                    group=step_id,
                )
            )
        else:
            replay.durable.pause_briefly(delay)
        attempt += 1


def _attempts_made(replay: Replay, step_id: str) -> int:
    """How many attempts earlier turns have made. A wait between two that is still open is waited for first."""
    made = 0
    for record in [r for r in replay.history.records.values() if r.group == step_id]:
        _, mark, attempt = record.step_id.rpartition(_RETRY_MARK)
        if mark:
            replay.wait(NewWait(record.step_id, record.kind, record.ordinal, group=step_id))
            made = max(made, int(attempt))
    return made


def _delay(retry: Backoff, attempt: int, error: Exception) -> float:
    after = error.after if isinstance(error, Retry) else None
    if after is None:
        return retry.delay(attempt)
    seconds = after.total_seconds() if isinstance(after, dt.timedelta) else after
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not math.isfinite(seconds) or not 0 <= seconds <= MAX_DELAY_SECONDS:
        raise InvalidOption("Retry(after)", after, "give seconds or a timedelta from 0 to a year.")
    return float(seconds)


def failure(
    replay: Replay,
    step_id: str,
    kind: StepKind,
    ordinal: int,
    arguments_hash: str,
    error: Exception,
    attempts: int = 1,
) -> StepFailed:
    """What the body is told of a step that failed. It becomes history if the body goes on."""
    limit = min(get_settings().max_error_bytes, 2_000)
    try:
        message = codec.storable_text(str(error), limit)
    except Exception:
        message = "<its text cannot be rendered>"
    # What interrupts a step is a class of its own, which says nothing to people.
    error_type = (JobTimeout if isinstance(error, JobTimeout) else type(error)).__qualname__
    told = json.dumps({"type": error_type, "message": message, "attempts": attempts})
    replay.keep_failure_later(
        replay.row(step_id, kind.value, ordinal, arguments_hash, None, error=told, attempts=attempts)
    )
    return StepFailed(step_id, error_type, message, attempts)
