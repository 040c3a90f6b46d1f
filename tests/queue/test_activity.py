"""What happened: noted in the commit in which it did, by whoever moved the row, and bounded."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Now

from pgjobs.health.happenings import Wanted, feed, sentence
from pgjobs.leases.reap import reap_lapsed
from pgjobs.models import Activity, Cause, Execution, Job, Worker
from pgjobs.queue import activity, audit, control, pauses, settle
from pgjobs.queue.attempts import Ended
from pgjobs.queue.outcomes import Failed, Problem, Raised, Succeeded
from pgjobs.worker import registration
from pgjobs.worker.reaper import Reaper
from pgjobs.workflows.approvals import decide
from pgjobs.workflows.sweep import sweep_due
from tests.leases.factories import KIND, PROBLEM, claim, end, lapse, make_due, pending, running
from tests.support.own_database import QUEUE, connection
from tests.workflows.rows import approval, execution

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def new_process(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been noted by it, nor left by tests that commit."""
    monkeypatch.setattr(settle, "_notes", activity.Notes())
    Activity.objects.all().delete()


def told(**filters: Any) -> list[tuple[str, str]]:
    """Kind and target, the oldest first."""
    found = Activity.objects.filter(**filters).order_by("at", "pk")
    return list(found.values_list("kind", "target_id"))


def committed(work: Any) -> Any:
    """What follows the commit of a test's transaction happens now."""
    from django.test import TestCase

    with TestCase.captureOnCommitCallbacks(using=QUEUE, execute=True):
        return work()


def test_success_and_a_known_error_leave_nothing() -> None:
    job = running()
    committed(lambda: end(job, Raised(PROBLEM, 0)))
    Activity.objects.all().delete()
    [again] = claim(1)
    committed(lambda: end(again, Raised(PROBLEM, 0)))
    [third] = claim(1)
    committed(lambda: end(third, Succeeded("1")))
    assert told() == []


def test_an_error_is_new_once_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = running(), running()
    committed(lambda: end(first, Raised(PROBLEM, 5)))
    monkeypatch.setattr(settle, "_notes", activity.Notes())
    committed(lambda: end(second, Raised(PROBLEM, 5)))

    [noted] = Activity.objects.all()
    assert (noted.kind, noted.target_id, noted.job_type) == ("error_new", str(first.lease.pk), KIND)
    assert noted.details == {
        "error": "ValueError",
        "status": "pending",
        "ids": [first.lease.pk],
        "count": 1,
    }
    assert noted.fingerprint == Job.objects.get(pk=first.lease.pk).fingerprint
    assert "no luck" not in str(noted.details)  # a message may hold secrets


def test_an_error_that_was_long_away_is_new_again_and_one_that_goes_on_is_not() -> None:
    job = running()
    end(job, Raised(PROBLEM, 0))
    Activity.objects.all().delete()
    for days, new in ((2, []), (activity.CAUSE_DAYS + 1, ["error_new"])):
        Cause.objects.update(seen_at=Now() - timedelta(days=days), first_at=Now() - timedelta(days=99))
        activity.prune(using=QUEUE)
        settle._notes = activity.Notes()
        make_due(job.lease.pk)
        [job] = claim(1)
        end(job, Raised(PROBLEM, 0))
        assert [kind for kind, _ in told()] == new
    assert Cause.objects.get().seen_at > Cause.objects.get().first_at - timedelta(days=1)


def test_a_cause_keeps_the_time_of_the_first_job_that_it_has_ended() -> None:
    """Not of the first attempt: what is tried again has not died of it. The reaper's cause is one too."""
    job = running(max_attempts=2)
    committed(lambda: end(job, Raised(PROBLEM, 0)))
    assert Cause.objects.get().ended_at is None
    [again] = claim(1)
    committed(lambda: end(again, Raised(PROBLEM, 0)))
    before = Cause.objects.get().ended_at
    control.retry([job.lease.pk], actor="ana", reason="fixed", more_attempts=1)
    settle._notes = activity.Notes()
    Cause.objects.update(seen_at=Now() - timedelta(days=2))
    make_due(job.lease.pk)
    [third] = claim(1)
    committed(lambda: end(third, Raised(PROBLEM, 0)))
    assert before is not None and Cause.objects.get().ended_at == before

    lost = running(max_crashes=1)
    lapse(lost.lease.pk)
    reap_lapsed(Job, using=QUEUE)
    killer = Job.objects.get(pk=lost.lease.pk)
    assert Cause.objects.get(fingerprint=killer.fingerprint).ended_at is not None


def test_jobs_that_die_are_noted_together_and_once_a_minute() -> None:
    pending(7, max_attempts=1)
    ended = [Ended(job, Raised(PROBLEM, 0)) for job in claim(5)]
    committed(lambda: settle.settle(ended, using=QUEUE))
    noted = Activity.objects.get(kind="job_died")
    assert (noted.details["count"], len(noted.details["ids"])) == (5, 5)
    assert [kind for kind, _ in told()] == ["error_new", "job_died"]

    for job in claim(2):
        committed(lambda job=job: end(job, Raised(PROBLEM, 0)))
    assert len(told(kind="job_died")) == 1
    other = running()
    committed(lambda: end(other, Failed(Problem("fail", "", "encrypted file"))))
    assert told(kind="job_died")[1:] == [("job_died", str(other.lease.pk))]


def test_what_is_rolled_back_was_not_noted_and_is_noted_the_next_time() -> None:
    job = running(awaited=True)
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=QUEUE):
        end(job, Raised(PROBLEM, 0))
        raise ZeroDivisionError
    assert told() == []
    end(job, Raised(PROBLEM, 0))
    assert told() == [("error_new", str(job.lease.pk))]


def test_a_settlement_that_came_too_late_is_no_news() -> None:
    job = running(max_attempts=1)
    lapse(job.lease.pk)
    reap_lapsed(Job, using=QUEUE)
    Activity.objects.all().delete()
    assert end(job, Raised(PROBLEM, 0)) == set()
    assert told() == [] and not Cause.objects.exists()


def test_leases_that_are_taken_back_are_noted_once_for_each_worker() -> None:
    pending(8)
    held = [job.lease.pk for job in claim(7, owner="w-8")]
    held += [job.lease.pk for job in claim(1, owner="w-9")]
    spent = execution("running", lease_owner="w-8", max_crashes=1)
    lapse(*held)
    Execution.objects.filter(pk=spent.pk).update(lease_expires_at=Now() - timedelta(seconds=5))
    for model in (Job, Execution):
        reap_lapsed(model, using=QUEUE)

    first, second, third = Activity.objects.filter(kind="lease_reclaimed").order_by("pk")
    assert (first.target_id, first.job_type, first.queue) == ("w-8", KIND, "default")
    assert first.details == {"label": "job", "ids": held[:5], "count": 7, "spent": 0}
    assert second.target_id == "w-9"
    assert (third.workflow, third.job_type, third.details["spent"]) == ("tests.flow", "", 1)
    assert told(kind="execution_paused") == [("execution_paused", str(spent.pk))]


def test_workers_come_and_go_and_bring_new_code() -> None:
    columns: dict[str, Any] = {"host": "h", "pid": 1, "version": "1", "slots": 1}
    for name, version in (("w-1", "v140"), ("w-2", "v140"), ("w-3", "v141")):
        Worker.objects.create(name=name, code_version=version, **columns)
    Worker.objects.filter(name="w-1").update(heartbeat_at=Now())
    Worker.objects.filter(name="w-1").update(stopped_at=Now())
    Worker.objects.filter(name="w-1").update(stopped_at=Now())

    assert told() == [(f"worker_{'started'}", f"w-{n}") for n in (1, 2, 3)] + [("worker_stopped", "w-1")]
    Worker.objects.filter(name="w-2").update(heartbeat_at=Now() - timedelta(minutes=5))
    Worker.objects.filter(name="w-1").update(heartbeat_at=Now() - timedelta(minutes=5))
    registration.note_silent(using=QUEUE)
    registration.note_silent(using=QUEUE)
    registration.close("w-3", reason="killed by SIGKILL", using=QUEUE)
    said = [sentence(each) for each in reversed(feed(Wanted(kind="worker_stopped")).rows)]
    assert said[0] == "worker w-1 stopped" and said[2:] == ["worker w-3 died: killed by SIGKILL"]
    assert said[1].startswith("worker w-2 went silent without a goodbye; last heard of at 20")
    registration.touch("w-2", registration.Vitals(), using=QUEUE)
    registration.close("w-2", using=QUEUE)
    assert sentence(feed(Wanted(kind="worker_stopped")).rows[0]) == "worker w-2 stopped"
    news = Activity.objects.filter(kind="worker_started").order_by("pk").values_list("details", flat=True)
    assert [each["new_version"] for each in news] == [True, False, True]
    Worker.objects.create(name="w-4", code_version="v141", end_reason="silent", **columns)
    Worker.objects.filter(name="w-4").update(stopped_at=Now())  # as the version before says goodbye
    assert sentence(feed(Wanted(kind="worker_stopped")).rows[0]) == "worker w-4 stopped"


@pytest.mark.parametrize("kind", ["queue", "type"])
def test_a_pause_tells_its_end_ahead_and_takes_it_back_when_it_changes(kind: str) -> None:
    pauses.pause("reports", kind=kind, actor="ana", reason="db migration", until=timedelta(hours=1))
    pauses.pause("reports", kind=kind, actor="ben", reason="longer", until=timedelta(hours=2))
    ahead = Activity.objects.get(at__gt=Now())
    assert (ahead.kind, ahead.actor, ahead.target_kind) == ("resumed", "", kind)
    assert ahead.at > Activity.objects.earliest("at").at + timedelta(minutes=110)

    pauses.resume("reports", kind=kind, actor="ana", reason="done")
    assert [(each.kind, each.actor) for each in Activity.objects.order_by("pk")] == [
        ("paused", "ana"),
        ("paused", "ben"),
        ("resumed", "ana"),
    ]
    last = Activity.objects.latest("pk")
    assert last.details["reason"] == "done"
    assert (last.queue, last.job_type) == (("reports", "") if kind == "queue" else ("", "reports"))


def test_what_people_did_is_noted_and_what_came_to_nothing_or_looked_at_secrets_is_not() -> None:
    job = running(queue="billing")
    end(job, Failed(Problem("fail", "", "no")))
    Activity.objects.all().delete()
    control.retry([job.lease.pk], actor="ana", reason="stripe is back")
    control.retry([job.lease.pk], actor="ana")
    audit.record("reveal", target_kind="job", target_ids=[job.lease.pk], actor="eve", done=1)
    audit.record("retry", target_kind="job", target_ids=["odd", 2**80], actor="eve", done=2)

    first, second = Activity.objects.order_by("pk")
    assert (first.kind, first.actor, first.queue, first.job_type) == ("operator", "ana", "billing", KIND)
    assert first.details["verb"] == "retry" and first.details["reason"] == "stripe is back"
    assert (second.actor, second.target_id) == ("eve", "odd")


def test_approvals_are_noted_when_decided_and_when_nobody_did() -> None:
    user = User.objects.create_superuser("ana")
    asked, late = approval(), approval(due_in=-5, on_timeout="reject")
    assert decide(asked.pk, approved=True, actor=user, reason="seen").done
    sweep_due(using=QUEUE)

    first, second = Activity.objects.filter(kind="approval").order_by("pk")
    assert (first.actor, first.target_kind, first.target_id) == ("ana", "execution", str(asked.execution_id))
    assert first.workflow == second.workflow == "tests.flow" and first.details["approved"] is True
    assert second.target_id == str(late.execution_id)
    assert second.details == {"timeout": True, "name": "apply fix", "approved": False}


def test_only_the_engine_pauses_and_fails_executions_on_record() -> None:
    for status in ("paused", "failed", "succeeded"):
        made = execution("running")
        Execution.objects.filter(pk=made.pk).update(
            status=status, lease_owner=None, lease_token=None, lease_expires_at=None
        )
    waiting = execution("waiting")
    Execution.objects.filter(pk=waiting.pk).update(status="paused")
    assert [kind for kind, _ in told()] == ["execution_paused", "execution_failed"]


def test_what_is_old_or_too_much_goes_and_causes_that_nobody_meets(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "ACTIVITY_DAYS": 3, "ACTIVITY_ROWS": 5}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_activity (at, kind) SELECT now() - make_interval(days => 5 - n / 4), 'operator' "
            "FROM generate_series(1, 20) AS n"
        )
    Cause.objects.create(fingerprint="a", seen_at=Now() - timedelta(days=31))
    Cause.objects.create(fingerprint="b")
    assert activity.prune(using=QUEUE) == 15
    assert Activity.objects.count() == 5 and [each.pk for each in Cause.objects.all()] == ["b"]
    Activity.objects.update(at=Now() - timedelta(days=4))
    Reaper(5, using=QUEUE).run()
    assert not Activity.objects.exists()


def test_a_process_notes_a_cause_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(activity.time, "monotonic", lambda: now[0])
    notes = activity.Notes()
    assert notes.wanted({"a", "b"}, {"a"}) == {"a", "b"}
    notes.made({"a", "b"}, {"a"})
    assert notes.wanted({"a", "b"}, {"a", "b"}) == {"b"}
    now[0] += 61
    assert notes.wanted({"a"}, {"a"}) == {"a"} and notes.wanted({"a"}, set()) == set()
    now[0] += 13 * 3600
    assert notes.wanted({"a"}, set()) == {"a"}


def test_a_token_that_is_not_the_holders_notes_nothing() -> None:
    job = running(max_attempts=1)
    Job.objects.filter(pk=job.lease.pk).update(lease_token=uuid.uuid4())
    assert end(job, Raised(PROBLEM, 0)) == set()
    assert told() == []
