"""Signals: kept in the mailbox until somebody takes them, taken once, in the order sent."""

from typing import Any

import pytest
from django.db import transaction

from pgjobs.exceptions import InvalidOption, NotStorable, WorkflowError
from pgjobs.leases.fence import hold, leave
from pgjobs.leases.states import Lease
from pgjobs.models import Execution, Message, Wait
from pgjobs.workflows.messages import deliver, send
from tests.leases.sessions import sessions, transaction_open
from tests.workflows.rows import ENDED, execution, resolution, status, wait

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)


def taken(pk: int) -> list[tuple[Any, bool]]:
    """Every message of an execution: its payload, and whether somebody took it."""
    found = Message.objects.filter(execution_id=pk).order_by("id")
    return [(message.payload, message.consumed_by_id is not None) for message in found]


def test_a_signal_to_a_waiting_execution_wakes_it() -> None:
    made = execution()
    paid, other = wait(made, "signal", name="paid"), wait(made, "signal", name="shipped")

    send(made.pk, "paid", {"amount": "12.50"})

    assert resolution(paid) == {"payload": {"amount": "12.50"}} and resolution(other) is None
    assert status(made) == "enqueued"
    assert Message.objects.get().consumed_by_id == paid.pk


@pytest.mark.parametrize("payload", [None, 0, "", [], False])
def test_an_empty_payload_is_a_payload(payload: Any) -> None:
    awaited = wait(execution(), "signal", name="paid")
    send(awaited.execution_id, "paid", payload)
    assert resolution(awaited) == {"payload": payload}


def test_a_signal_that_nobody_waits_for_yet_is_kept() -> None:
    made = execution("running")
    send(made.pk, "paid", 1)
    send(made.pk, "paid", 2)
    assert taken(made.pk) == [(1, False), (2, False)]

    first, second, third = (wait(made, "signal", name="paid") for _ in range(3))
    assert deliver(made.pk, "paid", using="default") == [first.pk]
    assert deliver(made.pk, "paid", using="default") == [second.pk]
    assert deliver(made.pk, "paid", using="default") == []
    assert [resolution(w) for w in (first, second, third)] == [{"payload": 1}, {"payload": 2}, None]


def test_one_signal_is_for_one_wait_and_one_wait_takes_one() -> None:
    made = execution()
    first, second = (wait(made, "signal", name="paid") for _ in range(2))
    send(made.pk, "paid", "a")
    assert [resolution(first), resolution(second)] == [{"payload": "a"}, None]
    send(made.pk, "paid", "b")
    send(made.pk, "paid", "c")
    assert resolution(second) == {"payload": "b"}
    assert taken(made.pk) == [("a", True), ("b", True), ("c", False)]


def test_a_signal_goes_to_its_execution_only() -> None:
    ours, theirs = (wait(execution(), "signal", name="paid") for _ in range(2))
    send(ours.execution_id, "paid")
    assert resolution(theirs) is None and status(theirs.execution) == "waiting"


def test_a_wait_that_has_timed_out_takes_no_signal() -> None:
    made = execution("running")
    wait(made, "signal", name="paid", resolved_at=made.created_at, resolution={"timeout": True})
    send(made.pk, "paid", 1)
    assert taken(made.pk) == [(1, False)]


def test_a_paused_execution_takes_the_signal_and_stays_paused() -> None:
    awaited = wait(execution("paused"), "signal", name="paid")
    send(awaited.execution_id, "paid", 1)
    assert resolution(awaited) == {"payload": 1} and status(awaited.execution) == "paused"


@pytest.mark.parametrize("end", [*ENDED, None])
def test_nobody_would_hear_it(end: str | None) -> None:
    pk = execution(end).pk if end else 4711
    with pytest.raises(WorkflowError, match=f"has ended .{end}." if end else "does not exist"):
        send(pk, "paid")
    assert Message.objects.count() == 0


@pytest.mark.parametrize("name", ["", "x" * 201, None, 7, "nul\x00"])
def test_names_that_are_none(name: Any) -> None:
    made = execution()
    with pytest.raises((InvalidOption, NotStorable)):
        send(made.pk, name)
    assert Message.objects.count() == 0


@pytest.mark.parametrize("payload", [object(), float("nan"), "\x00", "x" * 2_000_000])
def test_payloads_that_cannot_be_kept(payload: Any) -> None:
    made = execution()
    with pytest.raises(NotStorable):
        send(made.pk, "paid", payload)
    assert Message.objects.count() == 0


# --- two sessions. To park: lock the execution, open the wait, look into the mailbox, leave or stay.


def park(lease: Lease) -> bool:
    """What the engine does when a body comes to a signal; whether it parked."""
    with transaction.atomic():
        hold(Execution, lease, using="default")
        Wait.objects.create(execution_id=lease.pk, step_id="signal#1", ordinal=0, kind="signal", name="paid")
        if deliver(lease.pk, "paid", using="default"):
            return False
        leave(Execution, lease, to="waiting", using="default")
        return True


def lease_of(made: Execution) -> Lease:
    assert made.lease_token and made.lease_owner
    return Lease(made.pk, made.lease_token, made.lease_owner, "execution")


@in_sessions
def test_a_signal_that_arrives_while_parking_wakes() -> None:
    made = execution("running")
    with sessions("worker", "sender") as (one, two):
        parking = transaction_open(one, lambda: park(lease_of(made)))
        sending = two.start(send, made.pk, "paid", 5)
        two.wait_blocked()
        assert parking.finish() is True
        sending.result(30)
    assert status(made) == "enqueued" and taken(made.pk) == [(5, True)]
    assert Wait.objects.get().resolution == {"payload": 5}


@in_sessions
def test_a_signal_just_before_parking_is_found_and_nobody_parks() -> None:
    made = execution("running")
    with sessions("sender", "worker") as (one, two):
        sending = transaction_open(one, lambda: send(made.pk, "paid", 5))
        parking = two.start(park, lease_of(made))
        two.wait_blocked()
        sending.finish()
        assert parking.result(30) is False
    assert status(made) == "running" and taken(made.pk) == [(5, True)]


@in_sessions
def test_a_signal_that_is_rolled_back_was_never_sent() -> None:
    made = execution()
    awaited = wait(made, "signal", name="paid")

    def send_and_fail() -> None:
        send(made.pk, "paid")
        raise LookupError

    with sessions("sender") as (one,), pytest.raises(LookupError):
        transaction_open(one, send_and_fail).finish()
    assert resolution(awaited) is None and taken(made.pk) == [] and status(made) == "waiting"


@in_sessions
def test_two_senders_at_once_feed_one_wait_with_the_first() -> None:
    awaited = wait(execution(), "signal", name="paid")
    pk = awaited.execution_id
    with sessions("one", "two") as (one, two):
        first = transaction_open(one, lambda: send(pk, "paid", 1))
        second = two.start(send, pk, "paid", 2)
        two.wait_blocked()
        first.finish()
        second.result(30)
    assert resolution(awaited) == {"payload": 1} and taken(pk) == [(1, True), (2, False)]
