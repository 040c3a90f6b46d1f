"""Coroutine workflows: the same calls, awaited, with the same history."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from pgjobs import Backoff
from pgjobs.exceptions import DurableCallRefused, StepFailed
from pgjobs.models import Execution
from pgjobs.workflows.sweep import sweep_due
from tests.jobsapp import workflows as flows
from tests.jobsapp.jobs import ok
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.worker.conftest import Spawn
from tests.workflows.carrier import Carrier, finish_jobs, recorded
from tests.workflows.rows import status


async def turn_of_the_loop() -> None:
    """Comes back once whatever else was ready has run."""
    come = asyncio.Event()
    asyncio.get_running_loop().call_soon(come.set)
    await come.wait()


async def double(x: Any) -> Any:
    await turn_of_the_loop()
    return x * 2


def test_every_durable_call(carrier: Carrier) -> None:
    ran: list[str] = []

    async def noted(name: str) -> str:
        ran.append(name)
        await turn_of_the_loop()
        return name

    async def child(ctx: Any, n: int) -> int:
        return int(await ctx.step(double, n))

    async def body(ctx: Any) -> Any:
        told: list[Any] = [await ctx.step(noted, "first"), await ctx.step(ran.append, "sync", name="sync")]
        await ctx.sleep("nap", 5)
        told += list(await ctx.gather([ok.s(1), ok.s(2)]))
        told.append(await ctx.job(ok.s(3)))
        told.append(await ctx.wait_signal("go"))
        told.append(await ctx.child(born, n=4))
        told.append(await ctx.atomic("effect", lambda: Effect.objects.create(key="once", pid=0) and "effect"))
        told.append(await ctx.changed("path"))
        decision = await ctx.approval("ok?", timeout=0, on_timeout="approve")
        told.append(decision.approved)
        told += [str(ctx.uuid()), ctx.random.random(), ctx.key, ctx.now() is not None]
        return told

    born = carrier.flow(child, name="tests.child")
    execution = carrier.flow(body).start(key="k")
    execution.signal("go", "signalled")
    carrier.run(execution)
    carrier.wake(execution)
    for _ in range(2):
        finish_jobs()
        carrier.run(execution)
    assert sweep_due(using="default")
    carrier.run(execution)

    assert execution.status == "succeeded", execution.last_error
    done = {"done": True}
    assert execution.output[:9] == ["first", None, done, done, done, "signalled", 8, "effect", True]
    first = execution.output
    assert carrier.replay(execution).output == first
    assert ran == ["first", "sync"] and Effect.objects.count() == 1


def test_retries_and_failures(carrier: Carrier) -> None:
    tries: list[int] = []

    async def work() -> None:
        tries.append(1)
        raise ValueError("no luck")

    async def body(ctx: Any) -> str:
        try:
            await ctx.step(work, retry=Backoff(base=60, attempts=2))
        except StepFailed as error:
            return f"{error.error_type} after {error.attempts}"
        return "worked"

    execution = carrier.run(carrier.flow(body).start())
    assert (execution.status, len(tries)) == ("waiting", 1)
    assert carrier.wake(execution).output == "ValueError after 2" and len(tries) == 2


def test_two_durable_calls_at_once_are_refused(carrier: Carrier) -> None:
    async def body(ctx: Any) -> Any:
        return await asyncio.gather(ctx.step(double, 1), ctx.step(double, 2))

    execution = carrier.run(carrier.flow(body).start())

    assert execution.status == "failed" and "another durable call is under way" in execution.last_error
    assert "ctx.gather" in execution.last_error


def test_an_atomic_block_is_refused_with_the_way_out(carrier: Carrier) -> None:
    seen: list[str] = []

    async def body(ctx: Any) -> None:
        for arguments in (("a",), ("a", double, 1)):
            try:
                await ctx.atomic(*arguments)
            except DurableCallRefused as error:
                seen.append(str(error))

    assert carrier.run(carrier.flow(body).start()).status == "succeeded"
    assert len(seen) == 2 and all("await ctx.atomic(name, function" in told for told in seen)


def test_a_swallowed_suspension(carrier: Carrier) -> None:
    async def body(ctx: Any) -> str:
        with suppress(BaseException):
            await ctx.sleep("nap", 5)
        await ctx.step(double, 1)
        return "done"

    execution = carrier.run(carrier.flow(body).start())
    assert (execution.status, recorded(execution)) == ("waiting", [])
    assert carrier.wake(execution).output == "done"


def test_a_step_inside_a_step_is_refused(carrier: Carrier) -> None:
    async def outer(ctx: Any) -> None:
        await ctx.step(double, 1)

    async def body(ctx: Any) -> str:
        try:
            await ctx.step(outer, ctx)
        except StepFailed as error:
            return error.error_type
        return "nested"

    assert carrier.run(carrier.flow(body).start()).output == "DurableCallRefused"


def test_continue_as_new(carrier: Carrier) -> None:
    async def body(ctx: Any, left: int) -> str:
        if left:
            await ctx.continue_as_new(left=left - 1)
        return "the end"

    first = carrier.flow(body).start(left=1)
    carrier.run(first)

    assert [one.status for one in Execution.objects.all()] == ["succeeded"] * 2
    assert first.result(timeout=1) == "the end"


def test_a_call_that_nobody_awaits_does_not_hang_the_slot(carrier: Carrier) -> None:
    async def body(ctx: Any) -> str:
        task = asyncio.create_task(ctx.step(double, 1))
        await turn_of_the_loop()
        assert not task.done()
        return "gone"

    assert carrier.run(carrier.flow(body).start()).status in ("succeeded", "failed")


@pytest.mark.workers
def test_on_real_workers_with_a_timeout(spawn: Spawn) -> None:
    coroutine, plain = flows.async_steps.start(), flows.sync_timeout.start()
    spawn(concurrency=2)

    wait_until(lambda: status(coroutine) == "succeeded", 30, lambda: f"the end, {status(coroutine)}")
    wait_until(lambda: status(plain) == "succeeded", 30, lambda: f"the end, {status(plain)}")
    coroutine.refresh_from_db()
    plain.refresh_from_db()
    assert coroutine.output == ["slept", "JobTimeout", 1, 2]
    assert plain.output == "JobTimeout"


def test_a_step_whose_lease_is_lost_is_cancelled(carrier: Carrier) -> None:
    began = threading.Event()
    seen: list[str] = []

    async def long() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def body(ctx: Any) -> None:
        await ctx.step(long)

    execution = carrier.flow(body).start()
    holding = carrier.claim()
    assert holding is not None
    turning = carrier.start(holding)
    assert began.wait(30)
    execution.cancel(actor="ann")
    holding.lost = True
    turning.finish()

    assert seen == ["cancelled"] and status(execution) == "cancelled" and recorded(execution) == []


def test_a_step_goes_on_while_its_worker_shuts_down(carrier: Carrier) -> None:
    class Looked(threading.Event):
        looks = 0

        def is_set(self) -> bool:
            self.looks += 1
            return super().is_set()

    began, go, stopping = threading.Event(), threading.Event(), Looked()
    carrier._turns.stopping = stopping

    async def work() -> str:
        began.set()
        await asyncio.to_thread(go.wait, 30)
        return "done"

    async def body(ctx: Any) -> Any:
        return await ctx.step(work)

    execution = carrier.flow(body).start()
    holding = carrier.claim()
    assert holding is not None
    turning = carrier.start(holding)
    assert began.wait(30)
    stopping.set()
    before = stopping.looks
    wait_until(lambda: stopping.looks > before + 2, 30, "looks of the thread that waits for the step")
    go.set()
    turning.finish()

    assert recorded(execution) == ["work#1"]
