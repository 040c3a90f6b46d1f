"""Pauses: what runs goes on, nothing new starts, and time alone ends them."""

import datetime as dt
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db.models import F
from django.db.models.functions import Now

from pgjobs.exceptions import InvalidOption, NotStorable
from pgjobs.leases.due import outlook, suspects_waiting
from pgjobs.leases.lanes import Position
from pgjobs.queue.audit import Actor
from pgjobs.queue.models import Job, OperatorAction, QueuePause
from pgjobs.queue.outcomes import Succeeded
from pgjobs.queue.pauses import mark, pause, paused, resume
from pgjobs.workflows.claiming import claim_executions
from pgjobs.workflows.models import Execution
from tests.leases.factories import KIND, claim, claim_ids, end, pending
from tests.leases.sessions import sessions, transaction_open
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db

WHY = {"actor": "ann", "reason": "migration"}


def let_pass() -> None:
    """Moves every end of a pause into the past."""
    QueuePause.objects.update(until=Now() - timedelta(seconds=1), since=F("since") - timedelta(hours=1))


def claimed_executions() -> int:
    found = claim_executions(
        owner="worker-a",
        token=uuid.uuid4(),
        limit=5,
        lease_seconds=60,
        names=["tests.flow"],
        queues=[],
        suspects=False,
        using=QUEUE,
    )
    return len(found)


@pytest.mark.parametrize("queues", [(), ("billing", "mail")])
def test_nothing_of_a_paused_queue_is_claimed(queues: tuple[str, ...]) -> None:
    [held] = pending(queue="billing", priority=1)
    [free] = pending(queue="mail")
    pause("billing", **WHY)

    assert claim_ids(5, queues=queues) == [free]
    assert resume("billing", actor="ann").done and claim_ids(5, queues=queues) == [held]


def test_nothing_of_a_paused_type_is_claimed_in_any_queue() -> None:
    pending(job_type="tests.burst", queue="a")
    pending(job_type="tests.burst", queue="b")
    [free] = pending(queue="a")
    pause("tests.burst", kind="type", **WHY)

    assert claim_ids(5, kinds=[KIND, "tests.burst"]) == [free]


@pytest.mark.parametrize(("name", "kind"), [("billing", "queue"), (KIND, "type")])
def test_suspects_wait_too(name: str, kind: str) -> None:
    pending(queue="billing", crash_count=1)
    pause(name, kind=kind, **WHY)

    assert claim_ids(1, suspects=True) == []
    assert suspects_waiting(Job, kinds=[KIND], using=QUEUE) == (0, None)


@pytest.mark.parametrize(("name", "kind"), [("billing", "queue"), ("tests.flow", "type")])
def test_executions_wait_too(name: str, kind: str) -> None:
    Execution.objects.create(workflow_name="tests.flow", queue="billing")
    pause(name, kind=kind, **WHY)
    assert claimed_executions() == 0

    resume(name, kind=kind, actor="ann")
    assert claimed_executions() == 1


def test_a_pause_in_the_middle_of_a_flood() -> None:
    pending(20, queue="billing")
    position = Position()
    assert len(claim_ids(10, position=position)) == 10
    pause("billing", **WHY)

    assert claim_ids(10, position=position) == []


def test_what_runs_goes_on() -> None:
    pending(queue="billing")
    [job] = claim(1)
    pause("billing", **WHY)

    assert end(job, Succeeded("1")) == {job.lease.pk}


def test_time_alone_ends_a_pause() -> None:
    ids = pending(queue="billing")
    assert pause("billing", **WHY, until=timedelta(minutes=30)).until is not None
    assert claim_ids(1) == [] and len(paused()) == 1

    let_pass()
    assert claim_ids(1) == ids and paused() == []
    assert not resume("billing", actor="ann").done


def test_what_is_paused_is_not_due_and_the_end_of_a_pause_is_looked_for() -> None:
    pending(queue="billing")
    assert outlook(Job, kinds=[KIND], using=QUEUE) == (True, None)

    pause("billing", **WHY)
    assert outlook(Job, kinds=[KIND], using=QUEUE) == (False, None)
    pause("billing", **WHY, until=timedelta(seconds=20))
    due, seconds = outlook(Job, kinds=[KIND], using=QUEUE)
    assert not due and seconds is not None and 10 < seconds <= 20
    pause(KIND, kind="type", **WHY)
    resume("billing", actor="ann")
    assert outlook(Job, kinds=[KIND], queues=["billing"], using=QUEUE) == (False, None)


def test_the_row_says_who_why_and_since_when() -> None:
    outcome = pause("billing", actor=Actor("ann", "3", "admin"), reason="migration", until=timedelta(hours=1))

    [row] = paused()
    assert (row.kind, row.name, row.by, row.reason, row.until) == (
        "queue",
        "billing",
        "ann",
        "migration",
        outcome.until,
    )
    assert outcome.message == f"paused, until {outcome.until:%Y-%m-%d %H:%M:%S %Z}"
    action = OperatorAction.objects.get()
    assert (action.verb, action.target_kind, action.target_ids) == ("pause", "queue", ["billing"])
    assert (action.actor, action.via, action.reason, action.done) == ("ann", "admin", "migration", 1)


def test_pausing_again_changes_reason_and_end_but_not_since() -> None:
    pause("billing", **WHY, until=timedelta(hours=1))
    [before] = paused()
    outcome = pause("billing", actor="bob", reason="longer")

    [row] = paused()
    assert outcome.message == "pause changed, until it is resumed"
    assert (row.since, row.by, row.reason, row.until) == (before.since, "bob", "longer", None)


def test_pausing_after_the_end_begins_anew() -> None:
    pause("billing", **WHY, until=timedelta(hours=1))
    let_pass()
    old = QueuePause.objects.get().since

    assert pause("billing", **WHY).message == "paused, until it is resumed"
    assert QueuePause.objects.get().since > old


def test_a_pause_for_ever_written_by_hand_keeps_no_worker_from_its_work() -> None:
    """PostgreSQL before 17 cannot subtract from infinity."""
    QueuePause.objects.create(kind="queue", name="billing", until=Now() + timedelta(seconds=9))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_queuepause (kind, name, until) VALUES ('queue', 'mail', 'infinity')"
        )
    pending()
    assert outlook(Job, kinds=[KIND], using=QUEUE) == (True, pytest.approx(9, abs=2))


@pytest.mark.django_db(transaction=True)
def test_two_who_renew_pauses_that_are_over_do_not_wait_for_each_other() -> None:
    for name in ("billing", "mail"):
        pause(name, **WHY, until=timedelta(hours=1))
    let_pass()
    with sessions("other") as [other]:
        # Half of the other's: its own pause is renewed, those that are over are not yet removed.
        half = transaction_open(other, lambda: QueuePause.objects.filter(name="billing").update(until=None))
        assert pause("mail", **WHY).done
        half.finish()
    assert {each.name for each in paused()} == {"billing", "mail"}


def test_resuming_says_who_had_paused_it() -> None:
    pause("billing", **WHY)
    assert resume("billing", actor="bob").message.startswith("resumed; it was paused by ann since 20")

    again = resume("billing", actor="bob")
    assert (again.result, again.message) == ("skipped", "queue billing is not paused")
    verbs = OperatorAction.objects.order_by("id").values_list("verb", "done", "skipped")
    assert list(verbs) == [("pause", 1, 0), ("resume", 1, 0), ("resume", 0, 1)]


def test_a_pause_that_is_not_the_one_seen_is_left_alone() -> None:
    assert pause("billing", **WHY, expected="").done
    [seen] = paused()

    assert pause("billing", actor="bob", reason="mine", expected="").result == "conflict"
    assert pause("billing", actor="bob", reason="longer", expected=mark(seen)).done
    stale = resume("billing", actor="ann", expected=mark(seen))
    assert stale.result == "conflict"
    assert stale.message.startswith("it was paused otherwise when you looked; it is paused by bob since 20")
    assert [(each.by, each.reason) for each in paused()] == [("bob", "longer")]

    assert resume("billing", actor="ann", expected=mark(paused()[0])).done
    gone = resume("billing", actor="bob", expected=mark(seen))
    assert gone.message == "queue billing was paused when you looked; it is no longer"
    refused = OperatorAction.objects.order_by("id").values_list("verb", "done", "skipped", "refused")
    assert [each[1:] for each in refused if not each[1]] == [(0, 0, 1)] * 3


@pytest.mark.django_db(transaction=True)
def test_forgetting_old_pauses_waits_for_nobody() -> None:
    for name in ("a", "b"):
        pause(name, **WHY, until=timedelta(hours=1))
    let_pass()
    params = connection.get_connection_params()
    params = {key: value for key, value in params.items() if key not in ("cursor_factory", "context")}
    with psycopg.connect(**params) as other:
        other.execute("SELECT 1 FROM pgjobs_queuepause WHERE name = 'a' FOR UPDATE")
        assert pause("c", **WHY).done
        assert set(QueuePause.objects.values_list("name", flat=True)) == {"a", "c"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reason": " "}, "reason"),
        ({"name": ""}, "name"),
        ({"name": "q" * 101}, "name"),
        ({"kind": "cat"}, "kind"),
        ({"until": timedelta(0)}, "until"),
        ({"until": timedelta(days=9_999)}, "until"),
        ({"until": dt.datetime(2001, 1, 1)}, "until"),
        ({"until": dt.datetime(2001, 1, 1, tzinfo=dt.UTC)}, "until"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        pause(**{"name": "billing", **WHY, **options})

    assert not QueuePause.objects.exists() and not OperatorAction.objects.exists()


def test_a_name_that_cannot_be_stored() -> None:
    with pytest.raises(NotStorable):
        resume("a\x00b", actor="ann")


@pytest.mark.django_db(transaction=True)
def test_workers_are_told_to_look(heard: Callable[[], list[str]]) -> None:
    pause("billing", **WHY)
    assert heard() == []
    resume("billing", actor="ann")
    assert heard() == [""]
    resume("billing", actor="ann")
    assert heard() == []
