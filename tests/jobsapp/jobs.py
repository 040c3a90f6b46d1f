"""Handlers for the tests. A `gate` is the name of a file: the handler waits until the test creates it."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgjobs import Fail, Retry, Snooze, job
from tests.jobsapp.models import Effect

SLICE_SECONDS = 0.05
GATE_SECONDS = 120.0


def record(ctx: Any, key: str) -> None:
    from pgjobs.models import Job

    owner = Job.objects.filter(pk=ctx.job_id).values_list("lease_owner", flat=True).first()
    Effect.objects.create(
        key=key, job_id=ctx.job_id, attempt=ctx.attempt, pid=os.getpid(), worker=owner or ""
    )


def wait_for_gate(gate: str, between: Callable[[], object] = lambda: None) -> None:
    """Returns when the file `gate` exists. Calls `between` while it waits."""
    deadline = time.monotonic() + GATE_SECONDS
    pause = threading.Event()
    while not Path(gate).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Nobody created {gate} within {GATE_SECONDS:g} s.")
        between()
        pause.wait(SLICE_SECONDS)


@job()
def ok(value: Any = None) -> Any:
    return value


@job()
def echo(**payload: Any) -> dict[str, Any]:
    return payload


@job(takes_context=True)
def effect(ctx: Any, key: str) -> None:
    """One deed outside the settling transaction: shows every run."""
    record(ctx, key)


@job(takes_context=True)
def finish_effect(ctx: Any, key: str, result: Any = None) -> None:
    """One deed inside the settling transaction: lands once."""
    with ctx.finish(result):
        record(ctx, key)


@job(takes_context=True)
def sleep_for(ctx: Any, seconds: float, key: str = "sleep") -> None:
    """Leaves `<key>:start` and `<key>:end`, and reports progress in between."""
    record(ctx, f"{key}:start")
    slices = max(1, round(seconds / SLICE_SECONDS))
    pause = threading.Event()
    for done in range(slices):
        ctx.progress(done, slices)
        pause.wait(SLICE_SECONDS)
    record(ctx, f"{key}:end")


@job(takes_context=True)
def hold(ctx: Any, key: str, gate: str) -> None:
    """Leaves `<key>:start`, works without a word until the gate opens, then finishes with `<key>:end`."""
    record(ctx, f"{key}:start")
    wait_for_gate(gate)
    with ctx.finish():
        record(ctx, f"{key}:end")


@job(takes_context=True)
def hold_talking(ctx: Any, key: str, gate: str) -> None:
    """As `hold`, but reports progress while it waits, so that a lost lease shows at once."""
    record(ctx, f"{key}:start")
    wait_for_gate(gate, between=lambda: ctx.progress(0))
    with ctx.finish():
        record(ctx, f"{key}:end")


@job(takes_context=True)
def until_told_to_stop(ctx: Any, key: str) -> None:
    """Works until `ctx.should_stop`, then leaves `<key>:stopped` and returns."""
    record(ctx, f"{key}:start")
    deadline = time.monotonic() + GATE_SECONDS
    pause = threading.Event()
    while not ctx.should_stop and time.monotonic() < deadline:
        pause.wait(SLICE_SECONDS)
    record(ctx, f"{key}:stopped")


@job()
def fail_with(message: str) -> None:
    raise ValueError(message)


@job()
def fail_for_good(reason: str) -> None:
    raise Fail(reason)


@job(takes_context=True)
def flaky(ctx: Any, key: str, succeed_at: int) -> int:
    """Raises until attempt `succeed_at`, whose number it returns."""
    record(ctx, key)
    if ctx.attempt < succeed_at:
        raise RuntimeError(f"attempt {ctx.attempt} of {key} fails")
    return int(ctx.attempt)


@job(takes_context=True)
def retry_once(ctx: Any, key: str, after_seconds: float = 0) -> None:
    from datetime import timedelta

    record(ctx, key)
    if ctx.attempt == 1:
        raise Retry("once more", after=timedelta(seconds=after_seconds))


@job(takes_context=True)
def snooze_once(ctx: Any, key: str) -> None:
    from datetime import timedelta

    record(ctx, key)
    if Effect.objects.filter(key=key, job_id=ctx.job_id).count() == 1:
        raise Snooze(timedelta(seconds=0))


@job(takes_context=True)
def kill_process(ctx: Any, key: str) -> None:
    """Poison: the process that runs it dies."""
    record(ctx, key)
    os.kill(os.getpid(), signal.SIGKILL)


@job(takes_context=True)
async def async_effect(ctx: Any, key: str) -> str:
    await asyncio.sleep(SLICE_SECONDS)
    await Effect.objects.acreate(key=key, job_id=ctx.job_id, attempt=ctx.attempt, pid=os.getpid())
    return key


from tests.jobsapp import misbehaving  # noqa: E402, F401 - registers its handlers; it needs those above


@job()
def modules() -> list[str]:
    """What this process has imported."""
    return sorted(sys.modules)
