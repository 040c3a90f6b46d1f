"""Workflows for the tests that need real worker processes. Each step leaves a deed in the effect log."""

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connection

from pgjobs import Backoff, Fail, workflow
from pgjobs.exceptions import JobsFailed
from tests.jobsapp.jobs import fail_for_good, fail_with, kill_process, ok, wait_for_gate
from tests.jobsapp.models import Effect

MANY = 1_000


def deed(ctx: Any, step: str) -> None:
    """What a step did, where and in which turn; when, by the database's clock."""
    Effect.objects.create(
        key=f"{ctx.execution_id}:{step}", job_id=ctx.execution_id, attempt=ctx.attempt, pid=os.getpid()
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def once(folder: str, name: str) -> bool:
    """True for the first caller in any process."""
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@workflow()
def add_up(ctx: Any, n: int) -> int:
    total = 0
    for i in range(n):
        total = ctx.step(lambda total=total: total + 1, name="add", key=str(i))
    return total


@workflow()
def fan_out(ctx: Any, count: int) -> dict[str, int]:
    got = ctx.map(ok, [{"value": n} for n in range(count)])
    return {"sum": sum(got), "child": ctx.child(add_up, n=3)}


@workflow()
def mixed_luck(ctx: Any) -> Any:
    calls = [
        ok.s("fine"),
        fail_for_good.s(reason="never"),
        fail_with.using(max_attempts=1).s(message="no luck"),
        kill_process.using(max_crashes=1).s(key="poison"),
    ]
    try:
        ctx.gather(calls)
    except JobsFailed as error:
        first = len(error.failures)
    got = ctx.gather(calls[:1], name="alone")
    told = ctx.gather(calls[1:3], name="pair", tolerated_failures=2)
    assert first >= 1 and len(told.failures) == 2
    whole = ctx.gather(calls, name="whole", tolerated_failures=3)
    return [got[0], [[f.index, f.status] for f in whole.failures]]


@workflow(max_crashes=MANY)
def ten_steps(ctx: Any, points: dict[str, str], folder: str) -> list[int]:
    """``points``: where the process dies, once for each execution: {"3": "after"}."""

    def work(n: int) -> int:
        point = points.get(str(n))
        mark = f"{ctx.execution_id}-{n}"
        if point == "inside" and once(folder, mark):
            die()
        deed(ctx, f"work[{n}]")
        if point == "after" and once(folder, mark):
            die()
        return n

    done = []
    for n in range(10):
        if points.get(str(n)) == "before" and once(folder, f"{ctx.execution_id}-{n}"):
            die()
        done.append(ctx.step(work, n, key=n))
        if n == 4:
            ctx.sleep("nap", 0.05)
    return done


@workflow(max_crashes=MANY)
def staged(ctx: Any) -> str:
    """A step, a nap, an atomic step, a step: each stage can be held up from outside by :mod:`tests.workflows.held`."""
    ctx.step(deed, ctx, "first", name="first")
    ctx.sleep("nap", 0.3)
    with ctx.atomic("block"):
        deed(ctx, "block")
    ctx.step(deed, ctx, "last", name="last")
    return "done"


@workflow(max_crashes=3)
def poison(ctx: Any) -> None:
    ctx.step(deed, ctx, "healthy", name="healthy")
    ctx.step(lambda: (deed(ctx, "poison"), die()), name="poison")


@workflow(max_crashes=2)
def rough_road(ctx: Any, folder: str, bumps: int) -> str:
    """Kills its worker once in each step: more often in all than its budget, never twice without progress."""
    for n in range(bumps):
        ctx.step(
            lambda n=n: die() if once(folder, f"bump-{n}") else deed(ctx, f"bump[{n}]"), name="bump", key=n
        )
        if n % 2:
            ctx.sleep("rest", 0.01, key=n)
    return "arrived"


@workflow()
def six_steps(ctx: Any, gate: str) -> int:
    """Waits inside step 3 until the gate opens."""

    def work(n: int) -> int:
        deed(ctx, f"{n}:start")
        if n == 3:
            wait_for_gate(gate)
        deed(ctx, f"{n}:end")
        return n

    return sum(ctx.step(work, n, key=n) for n in range(1, 7))


@workflow()
def sleeper(ctx: Any, seconds: float) -> str:
    ctx.step(deed, ctx, "before", name="before")
    ctx.sleep("nap", seconds)
    ctx.step(deed, ctx, "after", name="after")
    return "rested"


@workflow()
def until(ctx: Any, seconds: float) -> str:
    """Sleeps until an instant so many seconds after its start."""
    from datetime import timedelta

    ctx.sleep_until("instant", ctx.now() + timedelta(seconds=seconds))
    return "rested"


@workflow()
def retries_later(ctx: Any) -> int:
    def work() -> int:
        deed(ctx, "try")
        tries = Effect.objects.filter(key=f"{ctx.execution_id}:try").count()
        if tries < 2:
            raise ConnectionError
        return tries

    return int(ctx.step(work, retry=Backoff(base=1.2, jitter=0, attempts=3)))


async def aslow(ctx: Any, seconds: float) -> str:
    import asyncio

    await asyncio.sleep(seconds)
    return "slept"


@workflow()
async def async_steps(ctx: Any) -> list[Any]:
    from pgjobs.exceptions import StepFailed

    got: list[Any] = [await ctx.step(aslow, ctx, 0.05)]
    try:
        await ctx.step(aslow, ctx, 60, name="too slow", timeout=0.3)
    except StepFailed as error:
        got.append(error.error_type)
    await ctx.sleep("nap", 0.05)
    got += list(await ctx.gather([ok.s(1), ok.s(2)]))
    return got


@workflow()
def sync_timeout(ctx: Any) -> str:
    from pgjobs.exceptions import StepFailed

    def slow() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            threading.Event().wait(0.01)

    try:
        ctx.step(slow, timeout=0.3)
    except StepFailed as error:
        return error.error_type
    return "in time"


@workflow()
def two_waits(ctx: Any) -> list[Any]:
    return [ctx.wait_signal("go"), ctx.wait_signal("go")]


@workflow()
def in_a_block(ctx: Any, folder: str) -> int:
    """Effects and checkpoint in one commit, with a death on either side of it."""
    with ctx.atomic("block") as block:
        deed(ctx, "block")
        block.output = connection.connection is not None
        if once(folder, "inside"):
            die()
    if once(folder, "outside"):
        die()
    ctx.atomic("called", deed, ctx, "called")
    if once(folder, "later"):
        die()
    return int(block.output)


@workflow()
def ask(ctx: Any, question: str, seconds: float = 60.0) -> dict[str, Any]:
    """One person's decision, and a step that shows that it went on."""
    decision = ctx.approval(
        question,
        timeout=timedelta(seconds=seconds),
        on_timeout="reject",
        context={"period": "2026-11", "sum": "1204331.10"},
    )
    ctx.step(deed, ctx, "after", name="after")
    return {"approved": decision.approved, "by": decision.by, "reason": decision.reason}


@workflow()
def five_steps(ctx: Any, broken: str) -> int:
    """Fails for good in step 3 while the file ``broken`` is there."""

    def work(n: int) -> int:
        deed(ctx, f"work-{n}")
        if n == 3 and Path(broken).exists():
            raise Fail(f"step {n} cannot work while {Path(broken).name} is there")
        return n

    return sum(ctx.step(work, n, key=n) for n in range(1, 6))
