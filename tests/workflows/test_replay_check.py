"""The deploy gate: code is changed under executions that wait, and each is replayed dry against it."""

import asyncio
import io
import threading
import time
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction

from pgjobs import Backoff
from pgjobs.models import Execution, Job, StepOutput, Wait
from pgjobs.workflows.history import INLINE_BYTES
from pgjobs.workflows.replay_check import Finding, Report, check
from tests.jobsapp.jobs import ok
from tests.support.waiting import wait_until
from tests.workflows.carrier import Carrier
from tests.workflows.deployed import (
    Body,
    added,
    charge,
    cut_short,
    original,
    other_arguments,
    other_kind,
    removed,
    renamed,
    reordered,
    ship,
    sleeper,
)
from tests.workflows.rows import NAME, execution

pytestmark = pytest.mark.django_db(transaction=True)


def only(report: Report) -> Finding:
    [finding] = report.findings
    return finding


def untouched(of: Execution) -> list[Any]:
    """Everything that is known of an execution."""
    tables = (
        Execution.objects.filter(pk=of.pk),
        *(m.objects.filter(execution=of) for m in (StepOutput, Wait)),
    )
    return [list(rows.order_by("pk").values()) for rows in tables]


@pytest.mark.parametrize(
    ("body", "step", "history", "code"),
    [
        (
            added,
            "announce#1",
            "the history has step 'charge#1' as call 0",
            "the code calls this step as call 0",
        ),
        (removed, "cool down#1", "the history has it as call 1", "the code as call 0"),
        (
            renamed,
            "debit#1",
            "the history has step 'charge#1' as call 0",
            "the code calls this step as call 0",
        ),
        (reordered, "cool down#1", "the history has it as call 1", "the code as call 0"),
        (other_arguments, "charge#1", "its arguments are others (hash", "now)"),
        (other_kind, "charge#1", "the history has a step here", "the code calls a atomic"),
        (cut_short, "cool down#1", "the history has it as call 1", "the code returned without calling it"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_code_that_was_changed_under_a_sleeper_is_found_with_both_sides(
    carrier: Carrier, body: Body, step: str, history: str, code: str
) -> None:
    slept = sleeper(carrier)
    before = untouched(slept)
    carrier.flow(body)

    finding = only(check())

    assert (finding.execution, finding.workflow, finding.status) == (slept.pk, NAME, "waiting")
    assert (finding.problem, finding.step) == ("diverged", step)
    assert history in finding.detail and code in finding.detail
    assert untouched(slept) == before


def appended(ctx: Any, order: int) -> Any:
    label = original(ctx, order)
    ctx.step(ship, order, name="second parcel")
    return label


def marked(ctx: Any, order: int) -> Any:
    if ctx.changed("announce first"):
        ctx.step(ship, order, name="announce")
    return original(ctx, order)


@pytest.mark.parametrize("body", [original, appended, marked], ids=lambda body: body.__name__)
def test_code_that_still_fits_passes(carrier: Carrier, body: Body) -> None:
    slept = sleeper(carrier)
    before = untouched(slept)
    carrier.flow(body)

    report = check()

    assert (report.checked, report.findings) == (1, [])
    assert untouched(slept) == before


@pytest.mark.parametrize("status", ["enqueued", "waiting", "running", "paused"])
def test_every_unfinished_status_is_checked(carrier: Carrier, status: str) -> None:
    slept = sleeper(carrier)
    lease: dict[str, Any] = {}
    if status == "running":
        far = slept.created_at + timedelta(days=1)
        lease = {"lease_owner": "host.1", "lease_token": uuid.uuid4(), "lease_expires_at": far}
    Execution.objects.filter(pk=slept.pk).update(status=status, crash_count=status == "enqueued", **lease)
    carrier.flow(renamed)

    assert only(check()).status == status


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_what_has_ended_is_not_checked(carrier: Carrier, status: str) -> None:
    slept = sleeper(carrier)
    Execution.objects.filter(pk=slept.pk).update(status=status, completed_at=slept.created_at)
    carrier.flow(renamed)

    assert check().checked == 0


def test_no_step_runs_and_nothing_new_is_opened(carrier: Carrier) -> None:
    ran: list[str] = []

    def effect() -> None:
        ran.append("effect")

    def child(ctx: Any) -> None:
        ctx.step(effect)

    def every_call(ctx: Any, order: int) -> None:
        for call in (
            lambda: ctx.step(effect, retry=Backoff(attempts=3), timeout=5),
            lambda: ctx.atomic("atomic", effect),
            lambda: ctx.sleep(10),
            lambda: ctx.approval("may I"),
            lambda: ctx.wait_signal("go"),
            lambda: ctx.gather([ok.s()]),
            lambda: ctx.child(children),
            lambda: ctx.changed("it"),
        )[order:]:
            call()

    children = carrier.flow(child, name="tests.child")
    flow = carrier.flow(every_call)
    for order in range(8):
        flow.start(order=order)

    report = check()

    assert (report.checked, report.findings, ran) == (8, [], [])
    assert (StepOutput.objects.count(), Wait.objects.count(), Job.objects.count()) == (0, 0, 0)
    assert Execution.objects.count() == 8


def test_an_atomic_block_that_is_not_recorded_does_not_begin(carrier: Carrier) -> None:
    ran: list[str] = []

    def body(ctx: Any, order: int) -> None:
        with ctx.atomic("reserve") as step:
            ran.append("block")
            step.output = 1

    carrier.flow(body).start(order=1)

    assert (check().findings, ran) == ([], [])


def writing(ctx: Any, order: int) -> Any:
    User.objects.create(username=f"from the body {threading.get_ident()}")
    ok.enqueue()
    transaction.on_commit(lambda: User.objects.create(username="on commit"))
    return original(ctx, order)


async def writing_async(ctx: Any, order: int) -> Any:
    await User.objects.acreate(username="from the body")
    await ctx.step(charge, order)


@pytest.mark.parametrize("body", [writing, writing_async], ids=lambda body: body.__name__)
def test_what_the_body_itself_writes_is_rolled_back(carrier: Carrier, body: Body) -> None:
    carrier.flow(body).start(order=1)

    assert check().findings == []
    assert (User.objects.count(), Job.objects.count()) == (0, 0)


async def awaiting(ctx: Any, order: int) -> Any:
    paid = await ctx.step(charge, order)
    await ctx.sleep("cool down", timedelta(days=30))
    return paid


async def awaiting_others(ctx: Any, order: int) -> Any:
    await ctx.step(charge, order, name="debit")
    await ctx.sleep("cool down", timedelta(days=30))


def test_async_workflows_are_checked_too(carrier: Carrier) -> None:
    slept = sleeper(carrier, awaiting)
    assert check().findings == []
    carrier.flow(awaiting_others)

    finding = only(check())

    assert (finding.execution, finding.problem, finding.step) == (slept.pk, "diverged", "debit#1")


def test_a_divergence_counts_though_the_body_swallows_it(carrier: Carrier) -> None:
    sleeper(carrier)

    def swallowing(ctx: Any, order: int) -> Any:
        try:
            ctx.step(charge, order, name="debit")
        except Exception:
            return "all is well"

    carrier.flow(swallowing)

    assert (only(check()).problem, only(check()).step) == ("diverged", "debit#1")


def test_a_body_that_swallows_the_stop_runs_no_further_step(carrier: Carrier) -> None:
    ran: list[int] = []

    def swallowing(ctx: Any, order: int) -> Any:
        for attempt in range(3):
            try:
                ctx.step(ran.append, attempt, key=str(attempt))
            except BaseException:
                continue
        raise RuntimeError("only because it was stopped")

    carrier.flow(swallowing).start(order=1)

    assert (check().findings, ran) == ([], [])


def test_a_workflow_without_code_is_found(carrier: Carrier) -> None:
    gone = execution(workflow_name="left.behind")

    finding = only(check())

    assert (finding.execution, finding.workflow, finding.problem) == (gone.pk, "left.behind", "unknown")
    assert "No workflow 'left.behind' is registered" in finding.detail


def test_a_body_that_raises_before_new_work_is_found(carrier: Carrier) -> None:
    sleeper(carrier)

    def raising(ctx: Any, order: int) -> Any:
        return ctx.step(charge, order) + "no number"

    carrier.flow(raising)

    finding = only(check())

    assert finding.problem == "raised"
    assert finding.detail.startswith("TypeError: unsupported operand")


def test_an_input_that_no_longer_fits_is_found(carrier: Carrier) -> None:
    sleeper(carrier)
    carrier.flow(lambda ctx, order_id: None)

    assert "unexpected keyword argument 'order'" in only(check()).detail


def test_on_divergence_warn_is_told_and_tolerated(carrier: Carrier) -> None:
    sleeper(carrier, on_divergence="warn")
    carrier.flow(renamed, on_divergence="warn")

    findings = check().findings

    assert {finding.problem for finding in findings} == {"tolerated"}
    assert findings[0].step == "debit#1"
    call_command("pgjobs_check_replay", stdout=io.StringIO())


def looping(ctx: Any, order: int) -> None:
    while True:
        pass


async def sleeping_for_ever(ctx: Any, order: int) -> None:
    await asyncio.sleep(3_600)


async def looping_async(ctx: Any, order: int) -> None:
    while True:
        pass


@pytest.mark.parametrize("body", [looping, sleeping_for_ever, looping_async], ids=lambda body: body.__name__)
def test_a_body_that_does_not_come_back_is_given_up_and_the_others_are_checked(
    carrier: Carrier, body: Body
) -> None:
    slept = sleeper(carrier)
    endless = carrier.flow(body, name="tests.endless").start(order=1)
    carrier.flow(renamed)
    after = carrier.flow(original, name="tests.after").start(order=1)

    report = check(seconds=0.3)

    found = [(finding.execution, finding.problem) for finding in report.findings]
    assert report.checked == 3 and endless.pk < after.pk
    assert found == [(slept.pk, "diverged"), (endless.pk, "unfinished")]
    assert "within 0.3 s" in report.findings[1].detail


def test_a_thread_that_is_stuck_in_a_call_is_left_behind(carrier: Carrier) -> None:
    release = threading.Event()
    left = threading.Event()

    def stuck(ctx: Any, order: int) -> None:
        try:
            release.wait(60)
            ctx.step(charge)
        finally:
            left.set()

    stuck_one = carrier.flow(stuck, name="tests.stuck").start(order=1)
    fine = carrier.flow(original).start(order=1)
    began = time.monotonic()

    report = check(seconds=0.3)

    assert (report.checked, only(report).execution) == (2, stuck_one.pk)
    assert time.monotonic() - began < 30 and not left.is_set()
    assert Execution.objects.filter(pk=fine.pk, status="enqueued").exists()
    release.set()
    assert left.wait(20)
    wait_until(lambda: "pgjobs-replay" not in {thread.name for thread in threading.enumerate()})


def test_a_gather_under_way_passes_and_one_that_was_changed_is_found(carrier: Carrier) -> None:
    def gathering(ctx: Any, order: int) -> Any:
        return ctx.gather([ok.s(), ok.s()])

    def gathering_more(ctx: Any, order: int) -> Any:
        return ctx.gather([ok.s(), ok.s(), ok.s()])

    slept = sleeper(carrier, gathering)
    assert check().findings == []
    carrier.flow(gathering_more)

    assert (only(check()).execution, only(check()).step) == (slept.pk, "gather#1")
    assert Job.objects.count() == 2


def test_large_outputs_are_read_where_the_body_comes_to_them(carrier: Carrier) -> None:
    seen: list[int] = []

    def reading(ctx: Any, order: int) -> Any:
        text = ctx.step(lambda: "x" * (INLINE_BYTES + 1), name="scan")
        seen.append(len(text))
        ctx.sleep(3_600)

    sleeper(carrier, reading)
    seen.clear()

    assert check().findings == []
    assert seen == [INLINE_BYTES + 1]


def test_histories_are_loaded_in_batches(carrier: Carrier, django_assert_max_num_queries: Any) -> None:
    carrier.flow(original)
    Execution.objects.bulk_create([Execution(workflow_name=NAME, input={"order": 1}) for _ in range(120)])

    with django_assert_max_num_queries(20):
        report = check()

    assert (report.checked, report.findings) == (120, [])
