"""The sweeper: what is due ends, once, in batches; a bad row stalls nobody; what nobody woke is woken."""

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from pgjobs.models import Execution, Job, Wait
from pgjobs.workflows import sweep
from pgjobs.workflows.messages import send
from pgjobs.workflows.sweep import Position, repair, seconds_until_due, sweep_due
from pgjobs.workflows.waits import jobs_ended, lock_executions
from tests.leases.sessions import sessions, transaction_open
from tests.support.waiting import wait_until
from tests.workflows.rows import (
    accept_changes_of,
    approval,
    execution,
    gather,
    job,
    refuse_changes_of,
    resolution,
    status,
    wait,
)

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)

# Sleepers by the thousand: due ones, and as many that are not.
_SLEEPERS = """
WITH made AS (
    INSERT INTO pgjobs_execution (workflow_name, status) SELECT 'tests.flow', 'waiting' FROM generate_series(1, %(n)s)
    RETURNING id)
INSERT INTO pgjobs_wait (execution_id, step_id, kind, ordinal, wake_at)
SELECT id, 'sleep#1', 'sleep', 0, now() + CASE WHEN id %% 2 = 0 THEN interval '-1 hour' ELSE interval '1 hour' END
FROM made"""


@pytest.fixture(autouse=True)
def no_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of repairs is due only where a test says so."""
    monkeypatch.setattr(sweep, "_rounds", {"default": (float("inf"), Position())})


def executed(sql: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize(
    ("kind", "came_to"),
    [
        ("sleep", {"slept": True}),
        ("signal", {"timeout": True}),
        ("job", {"timeout": True}),
        ("child", {"timeout": True}),
    ],
)
def test_what_is_due_ends_and_wakes(kind: str, came_to: dict[str, bool]) -> None:
    due, early = wait(execution(), kind, due_in=-1), wait(execution(), kind, due_in=3_600)
    timeless = wait(execution(), kind)

    assert sweep_due(using="default") == 1

    assert resolution(due) == came_to and status(due.execution) == "enqueued"
    for still_open in (early, timeless):
        assert resolution(still_open) is None and status(still_open.execution) == "waiting"
    due.refresh_from_db()
    assert due.resolved_at >= due.wake_at
    assert sweep_due(using="default") == 0


@pytest.mark.parametrize(("on_timeout", "approved"), [("approve", True), ("reject", False), ("raise", None)])
def test_an_approval_comes_to_what_it_said(on_timeout: str, approved: bool | None) -> None:
    asked = approval(due_in=-1, on_timeout=on_timeout)
    sweep_due(using="default")

    asked.refresh_from_db()
    assert (asked.approved, asked.decided_by, asked.reason) == (approved, "", "timed out")
    came_to = asked.resolution
    assert datetime.fromisoformat(came_to.pop("at")).utcoffset() is not None
    assert came_to == {
        "approved": bool(approved),
        "by": None,
        "reason": "timed out",
        "data": None,
        "timeout": True,
    }
    assert status(asked.execution) == "enqueued"


def test_votes_short_of_the_quorum_do_not_outlast_the_deadline() -> None:
    asked = approval(due_in=-1, quorum=2, votes=[{"by": "ann", "user": "1", "approved": True, "at": "…"}])
    sweep_due(using="default")
    assert resolution(asked)["approved"] is False


@pytest.mark.parametrize("held", ["running", "paused", "succeeded", "enqueued"])
def test_only_a_waiting_execution_is_woken(held: str) -> None:
    due = wait(execution(held), "sleep", due_in=-1)
    assert sweep_due(using="default") == 1
    assert resolution(due) == {"slept": True} and status(due.execution) == held


def test_a_gather_that_times_out_in_two_batches_wakes_with_the_last() -> None:
    made = execution()
    members = gather(made, [job().pk for _ in range(5)])
    Wait.objects.update(wake_at=Now())

    assert sweep_due(using="default", limit=3) == 3
    assert status(made) == "waiting"
    assert sweep_due(using="default", limit=3) == 2
    assert status(made) == "enqueued"
    assert [resolution(w) for w in members] == [{"timeout": True}] * 5


def test_the_longest_overdue_come_first_and_never_more_than_the_limit() -> None:
    made = [wait(execution(), due_in=-n) for n in (1, 3, 2)]
    assert sweep_due(using="default", limit=2) == 2
    assert [resolution(w) is not None for w in made] == [False, True, True]


def test_seconds_until_due() -> None:
    assert seconds_until_due(using="default") is None
    wait(execution())
    wait(execution(), due_in=-5, resolved_at=Now())
    assert seconds_until_due(using="default") is None
    wait(execution(), due_in=100)
    assert seconds_until_due(using="default") == pytest.approx(100, abs=5)
    just_due = wait(execution(), due_in=0)
    assert seconds_until_due(using="default") == 0
    just_due.delete()


@pytest.mark.parametrize(("further", "seconds"), [(None, 1), (100, 1), (0.5, 0.25)])
def test_what_is_long_overdue_is_looked_at_again_in_a_second(further: float | None, seconds: float) -> None:
    wait(execution(), due_in=-100)
    if further:
        wait(execution(), due_in=further)
    assert seconds_until_due(using="default") == pytest.approx(seconds, abs=0.25)


def test_thousands_drain_in_few_statements_by_the_partial_index(django_assert_max_num_queries: Any) -> None:
    executed(_SLEEPERS, {"n": 4_000})
    executed("ANALYZE pgjobs_execution, pgjobs_wait")
    with django_assert_max_num_queries(10):
        assert sweep_due(using="default", limit=2_000) == 2_000
    assert executed("SELECT count(*) FROM pgjobs_execution WHERE status = 'enqueued'") == [(2_000,)]
    for sql in (sweep._DUE, sweep._SECONDS):
        params = {"wake_at": "0002-01-01+00", "id": 0, "limit": 500}
        [[[plan]]] = executed("EXPLAIN (FORMAT JSON) " + sql, params)
        assert "pgjobs_wait_due" in json.dumps(plan) and "Seq Scan" not in json.dumps(plan)


# --- bad rows


@pytest.fixture
def bad_waits(transactional_db: None) -> Iterator[None]:
    yield
    accept_changes_of("pgjobs_wait")


@pytest.mark.usefixtures("bad_waits")
def test_bad_rows_stall_nobody_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    made = [wait(execution(), due_in=-n) for n in range(20, 0, -1)]
    bad = {made[0].pk, made[7].pk}
    refuse_changes_of("pgjobs_wait", *bad)

    with caplog.at_level(logging.ERROR, "pgjobs.workflows"):
        assert sweep_due(using="default") == 18

    assert {w.pk for w in made if resolution(w) is None} == bad
    assert sorted(w.execution_id for w in made if w.pk in bad) == sorted(
        Execution.objects.filter(status="waiting").values_list("pk", flat=True)
    )
    for pk in bad:
        assert f"due wait {pk} cannot be handled" in caplog.text


@pytest.mark.usefixtures("bad_waits")
def test_a_batch_of_nothing_but_bad_rows_is_stepped_over() -> None:
    made = [wait(execution(), due_in=-n) for n in range(9, 0, -1)]
    refuse_changes_of("pgjobs_wait", *(w.pk for w in made[:6]))

    assert sweep_due(using="default", limit=3) == 3
    assert [resolution(w) is not None for w in made] == [False] * 6 + [True] * 3
    assert sweep_due(using="default", limit=3) == 0


# --- repairs


def test_a_target_that_has_ended_unheard() -> None:
    made, parent = execution(), execution()
    work, child = job("dead", last_error="no luck"), execution("failed", last_error="no way")
    running = gather(execution(), [job("running").pk])[0]
    [member] = gather(made, [work.pk])
    awaited = wait(parent, "child", target_id=child.pk)

    done, _ = repair(Position(), using="default")

    assert done == 2
    assert resolution(member) == {"status": "dead", "result": None, "job_id": work.pk, "error": "no luck"}
    assert resolution(awaited) == {
        "status": "failed",
        "result": None,
        "execution_id": child.pk,
        "error": "no way",
    }
    assert [status(made), status(parent)] == ["enqueued"] * 2
    assert resolution(running) is None
    assert repair(Position(), using="default")[0] == 0


def test_a_target_that_is_gone() -> None:
    made, parent = execution(), execution()
    [member] = gather(made, [987_654])
    awaited = wait(parent, "child", target_id=987_654)

    assert repair(Position(), using="default")[0] == 2

    assert resolution(member) == {
        "status": "deleted", "result": None, "job_id": 987_654, "error": "job 987654 was deleted before it ended"
    }  # fmt: skip
    assert resolution(awaited)["execution_id"] == 987_654
    assert [status(made), status(parent)] == ["enqueued"] * 2


def test_an_execution_that_nobody_woke() -> None:
    edited = wait(execution(), "sleep", resolved_at=Now(), resolution={"slept": True}).execution
    asleep = execution()
    wait(asleep, "sleep", ordinal=0, resolved_at=Now(), resolution={"slept": True})
    wait(asleep, "sleep", ordinal=1)
    enough, short = execution(), execution()
    for of in (enough, short):
        members = gather(of, [job().pk for _ in range(3)], min_successful=2)
        count = 2 if of is enough else 1
        for member in members[:count]:
            Wait.objects.filter(pk=member.pk).update(resolved_at=Now(), resolution={"status": "succeeded"})

    repair(Position(), using="default")

    assert [status(of) for of in (edited, asleep, enough, short)] == [
        "enqueued",
        "waiting",
        "enqueued",
        "waiting",
    ]


def test_a_round_goes_through_everything_window_by_window() -> None:
    stuck = [
        wait(execution(), "sleep", resolved_at=Now(), resolution={"slept": True}).execution for _ in range(5)
    ]
    unheard = [gather(execution(), [job("succeeded").pk])[0] for _ in range(5)]
    same_age = Execution.objects.filter(pk__in=[of.pk for of in stuck])
    same_age.update(created_at=stuck[0].created_at)

    position, calls = Position(), 0
    while calls == 0 or position != Position():
        _, position = repair(position, using="default", limit=2)
        calls += 1
        assert calls < 12
    assert {status(of) for of in stuck} == {"enqueued"}
    assert {status(w.execution) for w in unheard} == {"enqueued"}


def test_a_sweep_repairs_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_rounds", {})
    stuck = wait(execution(), "sleep", resolved_at=Now(), resolution={"slept": True}).execution
    assert sweep_due(using="default") == 1 and status(stuck) == "enqueued"
    Execution.objects.filter(pk=stuck.pk).update(status="waiting")
    assert sweep_due(using="default") == 0  # the next look comes after REPAIR_SECONDS


def test_repairs_read_by_partial_indexes() -> None:
    executed(_SLEEPERS, {"n": 4_000})
    executed(
        "INSERT INTO pgjobs_job (job_type, awaited) SELECT 'jobsapp.ok', true FROM generate_series(1, 2000)"
    )
    Wait.objects.filter(pk__in=Wait.objects.order_by("pk")[:2_000].values("pk")).update(
        target_id=F("id"), kind="job"
    )
    executed(
        "UPDATE pgjobs_execution SET created_at = now() - make_interval(secs => id),"
        " status = CASE WHEN id % 4 = 0 THEN 'succeeded' ELSE status END"
    )
    executed("ANALYZE pgjobs_execution, pgjobs_wait, pgjobs_job")
    params = {"target": -1, "kind": "", "created_at": "0002-01-01+00", "id": 0, "limit": 50}
    for sql, index in ((sweep._TARGETS, "pgjobs_wait_target"), (sweep._WAITING, "pgjobs_execution_waiting")):
        [[[plan]]] = executed("EXPLAIN (FORMAT JSON) " + sql, params)
        assert index in json.dumps(plan) and "Seq Scan" not in json.dumps(plan)


# --- two sessions


def test_what_was_resolved_between_the_look_and_the_lock_keeps_its_end() -> None:
    made = wait(execution(), "signal", due_in=-1, resolved_at=Now(), resolution={"payload": 5})
    waiters = {made.pk: made.execution_id}
    assert sweep._time_out([made.pk], waiters=waiters, using="default") == 0
    assert resolution(made) == {"payload": 5} and status(made.execution) == "waiting"


@in_sessions
def test_two_sweepers_share_the_work_and_never_wait_for_each_other() -> None:
    made = [wait(execution(), due_in=-n) for n in range(6, 0, -1)]
    with sessions("one", "two") as (one, two):
        first = transaction_open(one, lambda: sweep_due(using="default", limit=4))
        assert two.run(sweep_due, using="default", limit=4) == 2  # steps over what the first holds
        assert first.finish() == 4
    assert all(resolution(w) == {"slept": True} for w in made)
    assert Execution.objects.filter(status="enqueued").count() == 6


@in_sessions
def test_a_held_execution_is_skipped_and_swept_later() -> None:
    due = wait(execution(), due_in=-1)
    with sessions("holder") as (one,):
        holding = transaction_open(one, lambda: lock_executions([due.execution_id], using="default"))
        assert sweep_due(using="default") == 0
        holding.finish()
    assert sweep_due(using="default") == 1


@in_sessions
def test_a_signal_in_flight_at_the_timeout_wins() -> None:
    awaited = wait(execution(), "signal", name="paid", due_in=2)
    with sessions("sender") as (one,):
        sending = transaction_open(one, lambda: send(awaited.execution_id, "paid", 5))
        wait_until(lambda: seconds_until_due(using="default") == 0, message="the timeout")
        assert sweep_due(using="default") == 0
        sending.finish()
    assert sweep_due(using="default") == 0 and resolution(awaited) == {"payload": 5}


@in_sessions
def test_a_timeout_in_flight_wins_over_the_signal_which_is_kept() -> None:
    awaited = wait(execution(), "signal", name="paid", due_in=-1)
    with sessions("sweeper", "sender") as (one, two):
        sweeping = transaction_open(one, lambda: sweep_due(using="default"))
        sending = two.start(send, awaited.execution_id, "paid", 5)
        two.wait_blocked()
        sweeping.finish()
        sending.result(30)
    assert resolution(awaited) == {"timeout": True}
    [message] = awaited.execution.messages.all()
    assert message.consumed_by_id is None


@in_sessions
def test_a_repair_and_a_late_settlement_resolve_once() -> None:
    work = job("running")
    [member] = gather(execution(), [work.pk])
    Job.objects.filter(pk=work.pk).update(
        status="succeeded", result=3, lease_owner=None, lease_token=None, lease_expires_at=None
    )
    with sessions("settler", "sweeper") as (one, two):
        telling = transaction_open(one, lambda: jobs_ended([work.pk], "default"))
        repairing = two.start(repair, Position(), using="default")
        two.wait_blocked()
        telling.finish()
        repairing.result(30)
    member.refresh_from_db()
    assert member.resolution["result"] == 3 and status(member.execution) == "enqueued"
