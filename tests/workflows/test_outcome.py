"""Waiting for the end of an execution from outside."""

import uuid
from typing import Any

import pytest

from pgjobs.exceptions import ExecutionFailed, WorkflowError
from pgjobs.models import Execution
from pgjobs.workflows.outcome import wait_for_result
from tests.leases.sessions import sessions
from tests.workflows.rows import execution

pytestmark = pytest.mark.django_db


def test_the_output_is_decoded() -> None:
    key = uuid.uuid4()
    made = execution("succeeded", output={"id": {"$uuid": str(key)}, "n": [1, None]})
    assert wait_for_result(made.pk) == {"id": key, "n": [1, None]}
    assert wait_for_result(execution("succeeded").pk) is None


@pytest.mark.parametrize(
    ("status", "columns", "told"),
    [
        ("failed", {"last_error": "ValueError: no disk"}, "ended failed: ValueError: no disk"),
        (
            "cancelled",
            {"note": "cancelled by ann", "last_error": "older"},
            "ended cancelled: cancelled by ann",
        ),
        ("failed", {}, "ended failed: no error was recorded"),
    ],
)
def test_another_end_is_raised(status: str, columns: dict[str, Any], told: str) -> None:
    made = execution(status, **columns)
    with pytest.raises(ExecutionFailed, match=told) as caught:
        wait_for_result(made.pk)
    assert (caught.value.pk, caught.value.status) == (made.pk, status)


@pytest.mark.parametrize("status", ["enqueued", "running", "waiting"])
def test_too_early(status: str) -> None:
    made = execution(status)
    with pytest.raises(
        TimeoutError, match=f"execution {made.pk} is {status} after 0.05 s. It goes on by itself"
    ):
        wait_for_result(made.pk, 0.05)


def test_paused_says_why_and_what_to_do() -> None:
    made = execution("paused", pause_reason="step 'a' is gone")
    with pytest.raises(TimeoutError, match=r"is paused after 0 s \(step 'a' is gone\)\. Resume it"):
        wait_for_result(made.pk, 0)


def test_there_is_no_such_execution() -> None:
    with pytest.raises(WorkflowError, match="there is no execution 4711"):
        wait_for_result(4711)


def test_the_last_of_a_chain_answers() -> None:
    first = execution("succeeded", output="not this")
    second = execution("succeeded", continued_from=first)
    third = execution("waiting", continued_from=second)
    with pytest.raises(TimeoutError, match=f"execution {third.pk} is waiting"):
        wait_for_result(first.pk, 0)
    Execution.objects.filter(pk=third.pk).update(status="failed", last_error="e")
    with pytest.raises(ExecutionFailed, match=f"execution {third.pk} ended failed: e"):
        wait_for_result(first.pk, 0)


@pytest.mark.django_db(transaction=True)
def test_the_end_is_noticed_when_it_comes() -> None:
    made = execution("enqueued")
    with sessions("asker") as (one,):
        asking = one.start(wait_for_result, made.pk, 30)
        assert not asking.done()
        Execution.objects.filter(pk=made.pk).update(status="succeeded", output=7)
        assert asking.result(30) == 7
