"""Retention: what ended long ago leaves the live tables with all that belongs to it, and nothing that is needed."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from pgjobs.exceptions import ExecutionFailed
from pgjobs.models import ArchivedExecution, Execution, Message, StepOutput, Wait
from pgjobs.workflows.approvals import REJECTED
from pgjobs.workflows.outcome import wait_for_result
from pgjobs.workflows.retention import retire
from tests.leases.plans import Recorder
from tests.leases.sessions import sessions, transaction_open
from tests.workflows.rows import ENDED, accept_changes_of, approval, execution, refuse_changes_of, step, wait

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)

DAY = 86_400


@pytest.fixture(autouse=True)
def kept_for_a_day(settings: Any) -> None:
    settings.PGJOBS = {"WORKFLOW_RETENTION_SECONDS": DAY}


def old(status: str = "succeeded", days: float = 2, **columns: Any) -> Execution:
    return execution(status, completed_at=Now() - timedelta(days=days), **columns)


def live() -> set[int]:
    return set(Execution.objects.values_list("pk", flat=True))


def test_without_the_setting_everything_stays(settings: Any) -> None:
    settings.PGJOBS = {}
    old()
    assert retire(using="default") == 0 and Execution.objects.count() == 1


def test_each_end_has_its_time(settings: Any) -> None:
    settings.PGJOBS |= {
        "WORKFLOW_RETENTION_FAILED_SECONDS": 10 * DAY,
        "WORKFLOW_RETENTION_CANCELLED_SECONDS": 60,
    }
    made = {(status, days): old(status, days=days) for status in ENDED for days in (0.5, 2, 20)}
    assert retire(using="default") == 6
    kept = {("succeeded", 0.5), ("failed", 0.5), ("failed", 2)}
    assert live() == {made[each].pk for each in kept}


def test_one_end_alone_may_have_a_time(settings: Any) -> None:
    settings.PGJOBS = {"WORKFLOW_RETENTION_CANCELLED_SECONDS": 1e12}
    old("cancelled")
    assert retire(using="default") == 0, "longer than there is time"
    settings.PGJOBS = {"WORKFLOW_RETENTION_CANCELLED_SECONDS": DAY}
    stays = [old("failed"), old()]
    assert retire(using="default") == 1 and live() == {one.pk for one in stays}


def test_what_one_end_keeps_is_not_read_for_another(settings: Any) -> None:
    settings.PGJOBS = {"WORKFLOW_RETENTION_SECONDS": DAY, "WORKFLOW_RETENTION_FAILED_SECONDS": 900 * DAY}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_execution (workflow_name, status, completed_at)"
            " SELECT 'w', 'failed', now() - interval '9 days' FROM generate_series(1, 5000)"
        )
        cursor.execute("ANALYZE pgjobs_execution")
    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        assert retire(using="default") == 0
    assert len(recorder.plans) == len(ENDED) and sum(plan.buffers for plan in recorder.plans) < 40


@pytest.mark.parametrize("status", ENDED)
def test_an_old_one_moves_to_the_archive_with_its_whole_story(status: str) -> None:
    made = old(status, key="alert:1", version=2, input={"a": 1}, output={"b": [2]}, last_error="e", note="n")
    step(made, 0, output={"cause": "disk"})
    asked = approval(
        made, ordinal=1, approved=False, resolved_at=Now(), decided_by="ann", reason="no", context={"x": 1}
    )
    Message.objects.create(execution=made, name="paid", payload=5, consumed_by=asked)

    assert retire(using="default") == 1

    assert [model.objects.count() for model in (Execution, StepOutput, Wait, Message)] == [0] * 4
    archived = ArchivedExecution.objects.get()
    assert (archived.pk, archived.workflow_name, archived.version, archived.key, archived.status) == (
        made.pk, made.workflow_name, 2, "alert:1", status
    )  # fmt: skip
    assert (archived.created_at, archived.completed_at) == (made.created_at, made.completed_at)
    story = archived.story
    assert story["execution"]["input"] == {"a": 1} and story["execution"]["output"] == {"b": [2]}
    assert [row["output"] for row in story["steps"]] == [{"cause": "disk"}]
    assert [(row["id"], row["decided_by"], row["context"]) for row in story["waits"]] == [
        (asked.pk, "ann", {"x": 1})
    ]
    assert [(row["payload"], row["consumed_by_id"]) for row in story["messages"]] == [(5, asked.pk)]
    with connection.cursor() as cursor:
        cursor.execute(REJECTED)
        [row] = cursor.fetchall()
    assert row[:5] == (made.pk, made.workflow_name, "alert:1", asked.step_id, "apply fix") and row[6:8] == (
        "ann",
        "no",
    )


def test_delete_keeps_nothing(settings: Any) -> None:
    settings.PGJOBS = {"WORKFLOW_RETENTION_SECONDS": DAY, "WORKFLOW_RETENTION": "delete"}
    step(old(), 0)
    assert retire(using="default") == 1
    assert [model.objects.count() for model in (Execution, StepOutput, ArchivedExecution)] == [0] * 3


@pytest.mark.parametrize("status", ["enqueued", "running", "waiting", "paused"])
def test_the_unfinished_stay_however_old(status: str) -> None:
    execution(status, created_at=Now() - timedelta(days=900))
    assert retire(using="default") == 0


def test_the_young_stay() -> None:
    old(days=0.9)
    assert retire(using="default") == 0


def test_an_undecided_approval_is_kept() -> None:
    asked = approval(old("failed"))
    assert retire(using="default") == 0
    Wait.objects.filter(pk=asked.pk).update(resolved_at=Now())
    assert retire(using="default") == 1


def test_children_go_before_their_parent() -> None:
    parent = old(days=9)
    child = execution(parent=parent)
    assert retire(using="default") == 0
    Execution.objects.filter(pk=child.pk).update(status="succeeded", completed_at=Now() - timedelta(days=2))
    assert retire(using="default") == 1 and live() == {parent.pk}
    assert retire(using="default") == 1


def test_a_child_whose_parent_has_yet_to_hear_of_it_is_kept() -> None:
    parent = execution()
    child = old(parent=parent)
    awaited = wait(parent, "child", target_id=child.pk)
    assert retire(using="default") == 0
    Wait.objects.filter(pk=awaited.pk).update(resolved_at=Now())
    assert retire(using="default") == 1


def test_a_chain_is_found_through_the_archive() -> None:
    first = old()
    second = old(continued_from=first, days=1.5)
    third = execution("succeeded", continued_from=second, output="the end")

    assert retire(using="default") == 2

    third.refresh_from_db()
    assert third.continued_from_id is None and live() == {third.pk}
    assert wait_for_result(first.pk, 0) == "the end"


def test_the_outcome_of_an_archived_one() -> None:
    good, bad = old(output={"$decimal": "1.50"}), old("cancelled", note="cancelled by ann: wrong")
    retire(using="default")
    assert str(wait_for_result(good.pk, 0)) == "1.50"
    with pytest.raises(ExecutionFailed, match="cancelled by ann: wrong"):
        wait_for_result(bad.pk, 0)


def test_batches_are_bounded_and_the_oldest_go_first() -> None:
    made = [old(days=days) for days in (3, 5, 4)]
    assert retire(using="default", limit=2) == 2 and live() == {made[0].pk}
    assert retire(using="default", limit=2) == 1
    assert retire(using="default", limit=2) == 0


@pytest.mark.django_db(transaction=True)
def test_a_row_that_cannot_go_does_not_keep_the_others(caplog: pytest.LogCaptureFixture) -> None:
    made = [old(days=20 - n) for n in range(8)]
    bad = {made[0].pk, made[1].pk}
    refuse_changes_of("pgjobs_execution", *bad)
    try:
        with caplog.at_level(logging.ERROR, "pgjobs.workflows"):
            assert retire(using="default", limit=2) == 2  # steps over a batch of nothing but bad ones
            assert retire(using="default", limit=10) == 4
    finally:
        accept_changes_of("pgjobs_execution")
    assert live() == bad and ArchivedExecution.objects.count() == 6
    assert f"ended execution {made[0].pk} cannot be handled" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_row_that_another_table_refers_to_stays() -> None:
    kept, gone = old(), old()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE incident (execution_id bigint REFERENCES pgjobs_execution DEFERRABLE INITIALLY DEFERRED)"
        )
        try:
            cursor.execute("INSERT INTO incident VALUES (%s)", [kept.pk])
            assert retire(using="default") == 1
        finally:
            cursor.execute("DROP TABLE incident")
    assert live() == {kept.pk} and [row.pk for row in ArchivedExecution.objects.all()] == [gone.pk]


@in_sessions
def test_what_somebody_holds_is_left_for_later() -> None:
    made = [old("failed") for _ in range(3)]
    with sessions("operator") as (one,):
        holding = transaction_open(
            one, lambda: list(Execution.objects.select_for_update().filter(pk=made[1].pk))
        )
        assert retire(using="default") == 2
        holding.finish()
    assert retire(using="default") == 1


@in_sessions
def test_two_at_once_retire_each_once() -> None:
    for _ in range(6):
        step(old(), 0)
    with sessions("one", "two") as (one, two):
        first = transaction_open(one, lambda: retire(using="default", limit=4))
        assert two.run(retire, using="default", limit=6) == 2
        assert first.finish() == 4
    assert Execution.objects.count() == 0 and ArchivedExecution.objects.count() == 6
