"""Bulk operations: what they are about, how they go on, and how they are held and stopped."""

from collections import Counter
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from pgjobs.bulk import control, runner
from pgjobs.bulk.control import pause, plan, preview, release_canary, resume, start, stop
from pgjobs.bulk.filters import find
from pgjobs.bulk.models import BulkOperation
from pgjobs.bulk.runner import carry, run_batch
from pgjobs.bulk.states import SOURCES, BulkState
from pgjobs.exceptions import InvalidOption
from pgjobs.queue.audit import Actor
from pgjobs.queue.control import discard, retry
from pgjobs.queue.models import Job, OperatorAction
from pgjobs.queue.rights import RIGHTS
from tests.bulk.conftest import Ended
from tests.leases.sessions import sessions, transaction_open
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db

DEAD = {"status": "dead", "queue": "billing"}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten jobs a batch."""
    monkeypatch.setattr(runner, "BATCH", 10)


def planned(verb: str = "retry", given: Any = DEAD, **terms: Any) -> int:
    return plan(verb, given, actor=Actor("ann", "3", "admin"), reason="INC-221", **terms).pk


def started(*args: Any, **terms: Any) -> int:
    pk = planned(*args, **terms)
    assert start(pk, actor="ann").done
    return pk


def batch(pk: int) -> Any:
    return run_batch(pk, by="test", using=QUEUE)


def carried(pk: int) -> BulkOperation:
    carry(pk, by="test", sleep=lambda seconds: None)
    return BulkOperation.objects.get(pk=pk)


def statuses() -> Counter[str]:
    return Counter(Job.objects.values_list("status", flat=True))


def test_preview_counts_and_samples_and_changes_nothing(ended: Ended) -> None:
    mine = ended(30)
    ended(5, queue="mail")
    ended(5, status="failed")
    other = ended(3, job_type="tests.other")

    seen = preview(DEAD, "retry")

    assert (seen.count, seen.more, seen.words) == (33, False, "status dead, queue billing")
    assert seen.groups == [("billing", "jobsapp.ok", 30), ("billing", "tests.other", 3)]
    assert seen.sample[:3] == other[::-1] and set(seen.sample) <= {*mine, *other} and len(seen.sample) == 20
    assert not BulkOperation.objects.exists() and not OperatorAction.objects.exists()


def test_a_preview_stops_counting(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.bulk.filters.COUNT_LIMIT", 10)
    monkeypatch.setattr(control, "COUNT_LIMIT", 10)
    ended(30)

    assert (preview(DEAD, "retry").count, preview(DEAD, "retry").more) == (10, True)


@pytest.mark.usefixtures("small_batches")
def test_every_match_has_its_turn_once(ended: Ended) -> None:
    ended(35)
    ended(5, queue="mail")

    operation = carried(started())

    assert (operation.state, operation.done, operation.skipped) == (BulkState.DONE, 35, 0)
    assert operation.carried_by == "test" and operation.ended_at is not None
    assert statuses() == {"pending": 35, "dead": 5}
    assert set(Job.objects.filter(status="pending").values_list("note", flat=True)) == {
        f"retried by ann: INC-221 (bulk {operation.pk})"
    }


@pytest.mark.parametrize(
    ("verb", "status", "left"),
    [("retry", "failed", "pending"), ("retry", "cancelled", "pending"), ("cancel", "pending", "cancelled")],
)
@pytest.mark.usefixtures("small_batches")
def test_other_verbs_and_statuses(ended: Ended, verb: str, status: str, left: str) -> None:
    ended(25, status=status)

    assert carried(started(verb, {"status": status})).done == 25 and statuses() == {left: 25}


@pytest.mark.usefixtures("small_batches")
def test_discarding_and_what_is_discarded_is_out_of_sight(ended: Ended) -> None:
    ids = ended(25)
    discard(ids[:5], actor="ann")

    assert carried(started("discard")).done == 20
    assert preview(DEAD, "retry").count == 0 and carried(started()).done == 0


def test_one_cause_among_many(ended: Ended) -> None:
    ids = ended(10)
    Job.objects.filter(pk__in=ids[:4]).update(fingerprint="9a3f", error_class="ChargeDeclined")

    seen = preview({"status": "dead", "error_class": "ChargeDeclined"}, "retry")
    assert (seen.count, seen.words) == (4, "status dead, error class ChargeDeclined")
    assert carried(started(given={"status": "dead", "fingerprint": "9a3f"})).done == 4


def test_jobs_that_come_or_die_later_are_not_meant(ended: Ended) -> None:
    ended(3)
    pk = started()
    later = ended(2)
    [again] = ended(1)
    Job.objects.filter(pk=again).update(completed_at=Now())

    assert carried(pk).done == 3
    assert set(Job.objects.filter(status="dead").values_list("pk", flat=True)) == {*later, again}


def test_a_job_that_dies_again_is_not_retried_twice(ended: Ended, small_batches: None) -> None:
    ids = ended(15)
    pk = started()
    batch(pk)
    Job.objects.filter(pk__in=ids[:10]).update(status="dead", completed_at=Now())

    assert carried(pk).done == 15 and statuses() == {"dead": 10, "pending": 5}


def test_jobs_that_left_the_state_meanwhile_are_passed_by(ended: Ended, small_batches: None) -> None:
    ids = ended(20)
    pk = started()
    batch(pk)
    retry(ids[12:14], actor="bob")

    assert (carried(pk).done, statuses()["pending"]) == (18, 20)


@pytest.mark.django_db(transaction=True)
def test_jobs_that_another_transaction_holds_are_skipped(ended: Ended) -> None:
    ids = ended(5)
    pk = started()
    with sessions("other") as [other]:
        held = transaction_open(
            other, lambda: list(Job.objects.select_for_update().filter(pk__in=ids[:2]).values_list("pk"))
        )
        operation = carried(pk)
        held.finish()

    assert (operation.done, operation.skipped) == (3, 2) and statuses() == {"pending": 3, "dead": 2}


@pytest.mark.django_db(transaction=True)
def test_two_carriers_never_do_the_same(ended: Ended, small_batches: None) -> None:
    ended(20)
    pk = started()
    with sessions("other") as [other]:
        held = transaction_open(other, lambda: run_batch(pk, by="other", using=QUEUE))
        assert batch(pk) is None
        assert held.finish().moved == 10
    operation = carried(pk)

    assert (operation.done, operation.skipped) == (20, 0)


def test_a_batch_that_is_lost_is_lost_as_a_whole(ended: Ended, small_batches: None) -> None:
    ended(20)
    pk = started()
    with transaction.atomic(using=QUEUE):
        batch(pk)
        transaction.set_rollback(True, using=QUEUE)
    assert statuses() == {"dead": 20} and BulkOperation.objects.get(pk=pk).done == 0

    assert carried(pk).done == 20


def test_the_canary_waits_for_a_person(ended: Ended) -> None:
    ids = ended(12)
    pk = started(canary=5)

    operation = carried(pk)
    assert (operation.state, operation.done, operation.watched) == (BulkState.WAITING, 5, ids[:5])
    assert "canary of 5" in operation.note and batch(pk) is None
    assert release_canary(pk, actor="bob").message == "released (was waiting)"
    assert (carried(pk).state, statuses()["pending"]) == (BulkState.DONE, 12)


def test_the_stop_rule_waits_for_the_first_and_stops(ended: Ended) -> None:
    ids = ended(30)
    pk = started(stop_share=0.2, stop_first=10)
    assert batch(pk).moved == 10
    waiting = batch(pk)
    assert (waiting.moved, waiting.state) == (0, BulkState.RUNNING) and waiting.wait > 0

    Job.objects.filter(pk__in=ids[:3]).update(status="dead", completed_at=Now(), started_at=Now())
    operation = carried(pk)

    assert (operation.state, operation.done, operation.failed) == (BulkState.STOPPED, 10, 3)
    assert operation.note.startswith(
        "stop rule: 3 of the first 10 ended without success again, more than 20%"
    )


def test_the_stop_rule_lets_go_on_what_does_well(ended: Ended) -> None:
    ids = ended(30)
    pk = started(stop_share=0.2, stop_first=10)
    batch(pk)
    Job.objects.filter(pk__in=ids[:8]).update(status="succeeded", completed_at=Now(), started_at=Now())
    Job.objects.filter(pk__in=ids[8:10]).update(status="dead", completed_at=Now(), started_at=Now())

    assert (carried(pk).state, statuses()["pending"]) == (BulkState.DONE, 20)


def test_the_pace(ended: Ended) -> None:
    ended(100)
    pk = started(pace=20.0)
    first = batch(pk)
    assert first.moved == 1 and 0 < first.wait <= 0.1

    # Hours without a carrier make no flood: what is saved up is two seconds' worth.
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_bulkoperation SET paced_from = paced_from - interval '3 hours'")
    assert batch(pk).moved == 40
    assert batch(pk).moved <= 5


def test_in_a_request_it_goes_as_far_as_it_may(ended: Ended, small_batches: None) -> None:
    ended(30)
    assert carry(started(), by="web", seconds=30) is BulkState.DONE

    ended(30)
    slow = started(pace=0.5)
    assert carry(slow, by="web", seconds=30) is BulkState.RUNNING
    assert BulkOperation.objects.get(pk=slow).done == 1


def test_pause_resume_and_stop(ended: Ended, small_batches: None) -> None:
    ended(25)
    pk = started()
    batch(pk)
    assert pause(pk, actor="bob", reason="lunch").done and batch(pk) is None
    assert BulkOperation.objects.get(pk=pk).note == "paused by bob: lunch"
    assert resume(pk, actor="bob").done and batch(pk).moved == 10
    assert stop(pk, actor="bob").done and batch(pk) is None
    assert statuses() == {"pending": 20, "dead": 5}
    assert resume(pk, actor="bob").message == "it is stopped; only paused bulk operations can be resumed"
    assert carry(pk, by="test") is BulkState.STOPPED and carry(10**9, by="test") is None


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_never_ends_holds_nobody_up(
    ended: Ended, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its carrier was stopped in the middle, or its machine."""
    monkeypatch.setattr(control, "_PATIENCE", "50ms")
    ended(20)
    pk = started()
    with sessions("other") as [other]:
        held = transaction_open(other, lambda: run_batch(pk, by="other", using=QUEUE))
        outcome = stop(pk, actor="ann")
        runner.hold(pk, ValueError("mine failed"), using=QUEUE)
        assert (outcome.done, outcome.conflict, outcome.status) == (False, True, "running")
        assert "a batch of it has not ended" in outcome.message
        held.finish()

    assert BulkOperation.objects.get(pk=pk).state == "running"
    assert stop(pk, actor="ann").done


def test_a_stale_tab_does_nothing(ended: Ended) -> None:
    pk = started()
    pause(pk, actor="ann")

    outcome = stop(pk, actor="bob", expected="running")

    assert outcome.result == "conflict"
    assert outcome.message == "it was running when you looked; it is now paused"
    assert stop(10**9, actor="bob").message == "there is no such bulk operation"
    assert stop(2**63, actor="bob").message == "there is no such bulk operation"


def test_the_audit_has_the_beginning_and_the_end(ended: Ended, small_batches: None) -> None:
    ended(25)
    pk = started()
    carried(pk)

    begun, over = OperatorAction.objects.order_by("id")
    assert (begun.verb, begun.target_kind, begun.target_ids) == ("start", "bulk", [pk])
    assert begun.details["does"] == "retry" and begun.details["matching"] == 25
    assert (over.verb, over.actor, over.user_id, over.via) == ("bulk_retry", "ann", "3", "admin")
    assert (over.reason, over.done, over.target_count) == ("INC-221", 25, 25)
    assert over.details["filter"] == DEAD


def test_options_of_the_verb(ended: Ended) -> None:
    ended(3)
    carried(started(options={"more_attempts": 4, "queue": "slow"}))

    assert set(Job.objects.values_list("queue", "max_attempts")) == {("slow", 5)}


@pytest.mark.parametrize(
    ("given", "terms", "says"),
    [
        ({"status": "running"}, {}, "cancelled, dead, failed"),
        ({}, {}, "status"),
        ({"status": "dead", "quue": "x"}, {}, "queue"),
        ({"status": "dead", "queue": 7}, {}, "text"),
        (DEAD, {"reason": " "}, "reason"),
        (DEAD, {"pace": 0}, "pace"),
        (DEAD, {"canary": 0}, "canary"),
        (DEAD, {"stop_share": 1.5}, "stop_share"),
        (DEAD, {"stop_share": 0.5, "stop_first": 10**6}, "stop_first"),
        (DEAD, {"options": {"more_attempts": 0}}, "more_attempts"),
        (DEAD, {"options": {"colour": "red"}}, "colour"),
    ],
)
def test_what_makes_no_sense_is_refused(given: Any, terms: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        plan("retry", given, actor="ann", **{"reason": "INC-221", **terms})

    assert not BulkOperation.objects.exists()


def test_verbs_that_cannot_be_done_in_bulk() -> None:
    with pytest.raises(InvalidOption, match="retry, cancel, discard"):
        preview(DEAD, "release")
    with pytest.raises(InvalidOption, match="only what is retried"):
        plan("discard", DEAD, actor="ann", reason="x", stop_share=0.1)


def test_a_window_that_holds_nothing_moves_the_cursor_on(ended: Ended) -> None:
    ended(30, job_type="tests.other")
    mine = ended(2)
    operation = BulkOperation.objects.get(pk=planned(given={"status": "dead", "job_type": "jobsapp.ok"}))
    at, last, found = None, 0, []
    for _ in range(5):
        seen = find(
            operation.filter,
            upper_id=operation.upper_id,
            before=operation.before,
            cursor_at=at,
            cursor_id=last,
            limit=10,
            window=10,
            using=QUEUE,
        )
        at, last = seen.cursor_at, seen.cursor_id
        found += seen.ids
        if seen.exhausted:
            break

    assert seen.exhausted and sorted(found) == mine


def test_rights_name_the_states_that_the_verbs_know() -> None:
    told = {each.verb: each.states for each in RIGHTS if each.target == "bulk"}

    assert told == {verb: {state.value for state in states} for verb, states in SOURCES.items()}
