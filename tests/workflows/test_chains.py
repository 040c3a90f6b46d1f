"""Handles and keys of executions that continued as new, or have gone to the archive."""

import logging
from typing import Any

import pytest
from django.db import transaction

from pgjobs.exceptions import WorkflowError
from pgjobs.models import ArchivedExecution, Execution
from pgjobs.workflows.retention import retire
from tests.support.own_database import QUEUE
from tests.workflows.carrier import Carrier
from tests.workflows.rows import execution, status

pytestmark = pytest.mark.django_db


def chain(count: int, **columns: Any) -> list[Execution]:
    """The last of them waits and has the key."""
    made: list[Execution] = []
    for n in range(count):
        last = n == count - 1
        made.append(
            execution(
                "waiting" if last else "succeeded",
                continued_from=made[-1] if made else None,
                key="k" if last else None,
                input={"left": count - n},
                **columns,
            )
        )
    return made


def archived(*rows: Execution, settings: Any) -> None:
    Execution.objects.filter(pk__in=[row.pk for row in rows]).update(completed_at="2020-01-01T00:00:00Z")
    settings.PGJOBS = {"WORKFLOW_RETENTION_SECONDS": 60}
    for _ in rows:
        retire(using=QUEUE)
    assert ArchivedExecution.objects.filter(pk__in=[row.pk for row in rows]).count() == len(rows)


@pytest.mark.parametrize("retired", [0, 1, 2])
def test_a_handle_signals_and_cancels_the_last_of_its_chain(retired: int, settings: Any) -> None:
    made = chain(3)
    archived(*made[:retired], settings=settings)

    made[0].signal("go", 1)
    assert [m.execution_id for m in made[2].messages.all()] == [made[2].pk]
    assert made[0].cancel(actor="ann") is True and status(made[2]) == "cancelled"
    assert made[0].cancel(actor="ann") is False
    with pytest.raises(WorkflowError, match=f"execution {made[2].pk} has ended"):
        made[0].signal("go", 2)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("retired", [0, 1, 2])
def test_the_key_of_a_chain_stands_for_its_first_input(carrier: Carrier, retired: int, settings: Any) -> None:
    def body(ctx: Any, left: int) -> None:
        if left > 1:
            ctx.continue_as_new(left=left - 1)
        ctx.wait_signal("go")

    flow = carrier.flow(body)
    first = flow.start(left=3, key="k")
    carrier.run(first)
    runs = list(Execution.objects.order_by("id"))
    archived(*runs[:retired], settings=settings)

    again, other = flow.start(left=3, key="k"), flow.start(left=1, key="k")
    assert again.pk == other.pk == runs[-1].pk
    assert (again.input_differs, again.archived) == (False, False)
    # Once all before it are archived, nothing tells that the present input is not the first.
    assert other.input_differs is (retired < 2)


@pytest.mark.django_db(transaction=True)
def test_a_key_stays_taken_in_the_archive(
    carrier: Carrier, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    flow = carrier.flow(lambda ctx, n: {"n": n})
    first = flow.start(n=1, key="k")
    carrier.run(first)
    archived(first, settings=settings)

    with caplog.at_level(logging.WARNING, "pgjobs.workflows"):
        again = flow.start(n=1, key="k")
        with transaction.atomic(using=QUEUE):
            differs = flow.start(n=2, key="k")

    assert not Execution.objects.exists()
    assert (again.pk, again.status, again.output, again.key) == (first.pk, "succeeded", {"n": 1}, "k")
    assert (again.archived, first.archived) == (True, False)
    assert again.created_at == first.created_at and again.result(timeout=1) == {"n": 1}
    assert [again.input_differs, differs.input_differs] == [False, True]
    assert caplog.text.count("is taken by execution") == 1
    assert again.cancel(actor="ann") is False
    assert flow.start(n=1, key="another").archived is False
    ArchivedExecution.objects.all().delete()
    assert flow.start(n=1, key="k").archived is False


@pytest.mark.django_db(transaction=True)
def test_a_key_is_free_once_its_execution_is_deleted(carrier: Carrier, settings: Any) -> None:
    flow = carrier.flow(lambda ctx: None)
    first = flow.start(key="k")
    carrier.run(first)
    Execution.objects.update(completed_at="2020-01-01T00:00:00Z")
    settings.PGJOBS = {"WORKFLOW_RETENTION_SECONDS": 60, "WORKFLOW_RETENTION": "delete"}
    assert retire(using=QUEUE) == 1
    assert flow.start(key="k").pk != first.pk
