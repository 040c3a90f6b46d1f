"""One effect per idempotency key, whoever runs how often."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.queue.models import JobResult
from pgjobs.queue.outcomes import AlreadyExisted, Failed, Outcome, Raised, Snoozed, Succeeded
from pgjobs.queue.settle import settle
from tests.leases.factories import PROBLEM, claim, columns, end, pending, running
from tests.leases.sessions import Paused, sessions, transaction_open
from tests.support.own_database import QUEUE

pytestmark = pytest.mark.django_db


def results() -> dict[str, tuple[int, str, Any]]:
    return {r.idempotency_key: (r.job_id, r.produced_by, r.result) for r in JobResult.objects.all()}


def said(job: ClaimedJob) -> tuple[str, Any, str]:
    status, result, note = columns(job.lease.pk, "status", "result", "note")
    return status, result, note


def test_the_first_producer_is_named() -> None:
    first = running(owner="worker-a", idempotency_key="k")
    second = running(owner="worker-b", idempotency_key="k")
    end(first, Succeeded('"first"'))
    end(second, Succeeded('"second"'))

    assert results() == {"k": (first.lease.pk, "worker-a", "first")}
    assert said(first) == ("succeeded", "first", "")
    note = f"result already existed: produced by job {first.lease.pk} on worker worker-a"
    assert said(second) == ("succeeded", "first", note)
    assert columns(second.lease.pk, "completed_by") == "worker-b"


def test_two_of_one_batch() -> None:
    first, second = running(idempotency_key="k"), running(idempotency_key="k")
    moved = settle([Ended(first, Succeeded('"a"')), Ended(second, Succeeded('"b"'))], using=QUEUE)

    assert moved == {first.lease.pk, second.lease.pk} and len(results()) == 1
    [(winner, _, result)] = results().values()
    assert {said(first)[1], said(second)[1]} == {result}
    late = second if winner == first.lease.pk else first
    assert said(late)[2].startswith(f"result already existed: produced by job {winner} ")


def test_a_batch_of_keys_old_and_new() -> None:
    JobResult.objects.create(idempotency_key="old", job_id=9, produced_by="earlier", result="kept")
    old, new, plain = running(idempotency_key="old"), running(idempotency_key="new"), running()

    moved = settle([Ended(job, Succeeded('"now"')) for job in (plain, old, new)], using=QUEUE)

    assert moved == {old.lease.pk, new.lease.pk, plain.lease.pk}
    assert said(old) == ("succeeded", "kept", "result already existed: produced by job 9 on worker earlier")
    assert said(new) == ("succeeded", "now", "") and said(plain) == ("succeeded", "now", "")
    assert results().keys() == {"old", "new"}


def test_a_key_without_a_result_value_counts_as_produced() -> None:
    first, second = running(idempotency_key="k"), running(idempotency_key="k")
    end(first, Succeeded(None))
    end(second, Succeeded('"second"'))

    assert results() == {"k": (first.lease.pk, "worker-a", None)}
    assert said(second)[:2] == ("succeeded", None)


@pytest.mark.parametrize("outcome", [Failed(PROBLEM), Raised(PROBLEM, 0), Snoozed(0)])
def test_only_success_produces(outcome: Outcome) -> None:
    end(running(idempotency_key="k"), outcome)

    assert results() == {}


def test_the_claim_says_that_a_key_has_its_result() -> None:
    end(running(idempotency_key="k"), Succeeded('"first"'))
    pending(idempotency_key="k")
    pending(idempotency_key="other")
    pending()

    assert [job.already_produced for job in claim(3)] == [True, False, False]


def test_what_existed_is_told_without_being_worked_again() -> None:
    first = running(owner="worker-x", idempotency_key="k")
    end(first, Succeeded('"first"'))
    second = running(idempotency_key="k")
    assert second.already_produced
    end(second, AlreadyExisted("k"))

    note = f"result already existed: produced by job {first.lease.pk} on worker worker-x"
    assert said(second) == ("succeeded", "first", note)


def test_a_result_that_was_removed_meanwhile() -> None:
    end(running(idempotency_key="k"), Succeeded('"first"'))
    second = running(idempotency_key="k")
    JobResult.objects.all().delete()

    assert end(second, AlreadyExisted("k")) == {second.lease.pk}
    assert said(second)[0] == "succeeded" and "unknown" in said(second)[2]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first_commits", [True, False])
def test_two_sessions_race_for_one_key(first_commits: bool) -> None:
    first = running(owner="worker-a", idempotency_key="k")
    second = running(owner="worker-b", idempotency_key="k")

    def settle_first(pause: Callable[[], None]) -> None:
        with transaction.atomic(using=QUEUE):
            end(first, Succeeded('"first"'))
            pause()
            transaction.set_rollback(not first_commits, using=QUEUE)

    with sessions("one", "two") as [one, two]:
        settling = Paused(one, settle_first)
        waiting = two.start(end, second, Succeeded('"second"'))
        two.wait_blocked()
        settling.finish()
        assert waiting.result(30) == {second.lease.pk}

    if first_commits:
        assert results() == {"k": (first.lease.pk, "worker-a", "first")}
        note = f"result already existed: produced by job {first.lease.pk} on worker worker-a"
        assert said(second) == ("succeeded", "first", note)
    else:
        assert results() == {"k": (second.lease.pk, "worker-b", "second")}
        assert said(second) == ("succeeded", "second", "") and said(first)[0] == "running"


@pytest.mark.django_db(transaction=True)
def test_a_claim_is_not_held_up_by_a_key_that_is_being_stored() -> None:
    first = running(idempotency_key="k")
    [other] = pending(idempotency_key="k")
    with sessions("one", "two") as [one, two]:
        storing = transaction_open(one, lambda: end(first, Succeeded("1")))
        [job] = two.run(claim, 5)
        storing.finish()

    # It will be worked for nothing; its effect does not land.
    assert (job.lease.pk, job.already_produced) == (other, False)
    assert end(job, Succeeded("2")) == {other}
    assert said(job)[1] == 1
