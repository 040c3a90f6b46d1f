"""The guide is code: every block is run, every workflow in it is carried to its end, every call on ctx is in it."""

import re
import threading
import types
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.models import F

from pgjobs.models import Execution, Job, StepOutput, Wait
from pgjobs.queue.attempts import Ended
from pgjobs.queue.claiming import claim_jobs
from pgjobs.queue.outcomes import Finished
from pgjobs.queue.registry import registry
from pgjobs.queue.settle import settle
from pgjobs.worker import clock
from pgjobs.worker.executor import Executor
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.workflows.context import WorkflowContext
from pgjobs.workflows.registry import workflows
from pgjobs.workflows.replay_check import check
from tests.workflows.carrier import Carrier
from tests.workflows.rows import user

pytestmark = pytest.mark.django_db(transaction=True)

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the blocks of a page define, as one module of the app jobsapp."""
    monkeypatch.setattr(workflows, "_by_name", dict(workflows._by_name))
    monkeypatch.setattr(registry, "_by_name", dict(registry._by_name))
    module = types.ModuleType("tests.jobsapp.documented")
    text = "\n".join(PYTHON.findall((DOCS / name).read_text(encoding="utf-8")))
    exec(compile(text, name, "exec"), module.__dict__)
    return module


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch, carrier: Carrier) -> Iterator[Any]:
    """docs/workflows.md."""
    module = page("workflows.md", monkeypatch)
    carrier._names |= {name for name in workflows.names() if name.startswith(("guide.", "orders."))}
    yield module
    Group.objects.all().delete()


def run_jobs() -> int:
    """Claims and runs the jobs that are due, by the worker's executor; how many."""
    holdings = Holdings(60)
    ended: list[Ended] = []

    def settled(holding: Holding, end: Ended) -> None:
        if not isinstance(end.outcome, Finished):  # ctx.finish() has settled that one
            ended.append(end)

    executor = Executor(
        using="default",
        holdings=holdings,
        settled=settled,
        confirm=lambda holding: True,
        stopping=threading.Event(),
    )
    claimed = claim_jobs(
        owner="host.1",
        token=uuid.uuid4(),
        limit=100,
        lease_seconds=60,
        names=registry.names(),
        queues=(),
        suspects=False,
        using="default",
    )
    for holding in holdings.add(claimed, clock.now()):
        executor.run(holding)
    if ended:
        settle(ended, using="default")
    return len(claimed)


def carried(carrier: Carrier, execution: Execution) -> Execution:
    """Carried on until it has ended or waits for people."""
    carrier.run(execution)
    while execution.status == "waiting":
        if not run_jobs():
            if not Wait.objects.filter(kind="sleep", resolved_at__isnull=True).exists():
                break
            carrier.wake(execution)
        carrier.run(execution)
    return execution


def output(carrier: Carrier, execution: Execution) -> Any:
    ended = carried(carrier, execution)
    assert ended.status == "succeeded", (ended.status, ended.last_error, ended.pause_reason)
    return ended.result(timeout=1)


def test_every_call_on_ctx_has_an_example() -> None:
    blocks = "".join(PYTHON.findall((DOCS / "workflows.md").read_text(encoding="utf-8")))
    text = (DOCS / "workflows.md").read_text(encoding="utf-8")
    public = {name for name in vars(WorkflowContext) if not name.startswith("_")}
    attributes = {"attempt", "lease", "should_stop"}

    assert {name for name in public - attributes if f"ctx.{name}" not in blocks} == set()
    assert {name for name in attributes if f"`ctx.{name}`" not in text} == set()


def test_declare_and_start(guide: Any, carrier: Carrier) -> None:
    started = guide.order_was_paid(7, Decimal("10.00"))

    assert output(carrier, started) == {"receipt": "receipt of 10.00 for order 7", "parcels": 2}
    again = guide.order_was_paid(7, Decimal("11.00"))
    assert (again.pk, again.input_differs) == (started.pk, True)


def test_steps(guide: Any, carrier: Carrier) -> None:
    assert output(carrier, guide.steps.start(questions=["why", "who"])) == [
        "answer to why",
        "answer to who",
        "ValueError",
    ]
    assert guide.tries == ["why", "why", "why", "who"]


def test_atomic(guide: Any, carrier: Carrier) -> None:
    pks = output(carrier, guide.atomic.start(team="red"))

    assert dict(Group.objects.values_list("pk", "name")) == dict(zip(pks, ["red", "red admins"], strict=True))


def test_sleep_and_values(guide: Any, carrier: Carrier) -> None:
    assert output(carrier, guide.sleep.start()) is True
    started = guide.values.start(key="k")
    told = output(carrier, started)
    assert (told["execution"], told["key"], told["version"]) == (started.pk, "k", 1)
    assert 1 <= told["drawn"][1] <= 6 and told["drawn"][2] == started.created_at


def test_signals(guide: Any, carrier: Carrier) -> None:
    started = carrier.run(guide.signals.start())
    started.signal("paid", {"amount": "12.50"})
    assert output(carrier, started) == "paid 12.50"

    late = carrier.run(guide.signals.start())
    carrier.wake(late)
    assert output(carrier, late) == "never paid"


@pytest.mark.parametrize(
    ("approved", "came_to"), [(True, "refunded, approved by ann"), (False, "not refunded: too much")]
)
def test_approvals(guide: Any, carrier: Carrier, approved: bool, came_to: str) -> None:
    started = carrier.run(guide.approvals.start(amount=5, actor=user("bob", "auth.change_user")))

    decision = guide.answer(user("ann", "auth.change_user"), approved, "too much")

    assert decision.done, decision.message
    assert output(carrier, started) == came_to


def test_jobs(guide: Any, carrier: Carrier) -> None:
    started = guide.jobs.start(pages=["one two", "three"])

    assert output(carrier, started) == [3, 3, 2, [2, None], ["dead"]]


def test_children(guide: Any, carrier: Carrier) -> None:
    assert output(carrier, guide.children.start(orders=[1, 2])) == ["ORDER 1", "ORDER 2"]


def test_long_histories_and_changes(guide: Any, carrier: Carrier) -> None:
    started = guide.rounds.start(left=3, key="rounds")
    carrier.run(started)
    assert started.result(timeout=1) == "done"
    assert Execution.objects.filter(workflow_name="guide.rounds", status="succeeded").count() == 3
    assert output(carrier, guide.changed.start()) == "The Old Step"


def test_async(guide: Any, carrier: Carrier) -> None:
    assert output(carrier, guide.asynchronous.start(url="x")) == ["page at x", True, [3]]


def test_verbs(guide: Any, carrier: Carrier) -> None:
    started = carrier.run(guide.sleep.start())

    assert guide.operate(started) == [True, True, True]
    assert Execution.objects.exclude(pk=started.pk).get().status == "cancelled"


@pytest.mark.parametrize("release", ["second_release", "third_release"])
def test_changing_code_with_a_marker(monkeypatch: pytest.MonkeyPatch, carrier: Carrier, release: str) -> None:
    module = page("changing-workflow-code.md", monkeypatch)
    first = module.first_release.definition.function
    old = carrier.run(carrier.flow(first, name="changing.orders").start(order_id=1))
    changed = carrier.flow(getattr(module, release), name="changing.orders")

    assert check().findings == []
    new = carrier.run(changed.start(order_id=2))

    assert [output(carrier, execution) for execution in (old, new)] == ["shipped", "shipped"]
    assert steps_of(old) == ["charge#1", "ship#1"]
    assert steps_of(new)[0].endswith("[changed]") and len(steps_of(new)) > 2


def test_changing_code_without_a_marker_is_what_the_page_says(
    monkeypatch: pytest.MonkeyPatch, carrier: Carrier
) -> None:
    module = page("changing-workflow-code.md", monkeypatch)
    old = carrier.run(
        carrier.flow(module.first_release.definition.function, name="changing.orders").start(order_id=1)
    )

    def renamed(ctx: Any, order_id: int) -> None:
        ctx.step(str, order_id, name="debit")

    carrier.flow(renamed, name="changing.orders")
    carrier.wake(old)

    told = re.sub(r"\s+", " ", (DOCS / "changing-workflow-code.md").read_text(encoding="utf-8"))
    assert old.status == "paused" and old.pause_reason in told


def steps_of(execution: Execution) -> list[str]:
    return list(
        StepOutput.objects.filter(execution=execution)
        .order_by(F("ordinal"))
        .values_list("step_id", flat=True)
    )


@pytest.mark.parametrize("name", sorted(path.name for path in DOCS.glob("*.md")))
def test_sql_in_documents_runs(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    for statement in re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_the_question_about_rejected_fixes_is_answered(guide: Any, carrier: Carrier) -> None:
    started = carrier.run(guide.approvals.start(amount=5))
    guide.answer(user("ann", "auth.change_user"), False, "too much")
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    [sql] = [
        part for part in re.findall(r"^```sql\n(.*?)^```$", text, re.M | re.S) if "approved IS FALSE" in part
    ]

    with connection.cursor() as cursor:
        cursor.execute(sql)
        [row] = cursor.fetchall()

    assert row[:5] == (started.pk, "guide.approvals", None, "refund the order#1", "refund the order")
    assert row[6:8] == ("ann", "too much")


def test_the_quickstart(monkeypatch: pytest.MonkeyPatch, carrier: Carrier) -> None:
    module = page("quickstart.md", monkeypatch)
    one, [two], keyed = module.uploaded(7), module.many([8]), module.later(9)
    broken = module.extract.enqueue(document_id=1, pages=0)
    slow = module.extract.enqueue(document_id=1, pages=101)
    stored = module.store.enqueue(title="abc")

    while run_jobs():
        pass

    status = dict(Job.objects.values_list("pk", "status"))
    assert [status[pk] for pk in (one.pk, two, stored.pk)] == ["succeeded"] * 3
    assert (status[broken.pk], status[slow.pk], status[keyed.pk]) == ("failed", "pending", "pending")
    assert (keyed.priority, keyed.idempotency_key) == (10, "extract:9")
    assert Group.objects.get().name == "ABC"
    assert Job.objects.filter(payload={"document_id": 3}, status="succeeded").exists()
    Group.objects.all().delete()
