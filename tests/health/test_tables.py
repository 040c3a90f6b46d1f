"""Queues, workers, totals, causes and series: the figures that pages and commands show."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError
from django.db.models.functions import Now

from pgjobs.health import errors, facts, queues
from pgjobs.health.endings import NewCause, read_new_causes
from pgjobs.health.errorgroup import group_detail
from pgjobs.health.errors import error_groups
from pgjobs.health.examination import examine
from pgjobs.health.overview import overview
from pgjobs.health.phrases import counted, many, span
from pgjobs.health.queues import QueueRow, queue_table
from pgjobs.health.reading import Reader
from pgjobs.health.series import throughput
from pgjobs.models import Cause
from tests.health.situations import approval, execution, job, minute, run, worker
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def table() -> dict[str, QueueRow]:
    return {row.name: row for row in queue_table(examine().problems)}


def test_each_queue_stands_as_it_does() -> None:
    worker("w-1", queues='["mail", "idle"]', slots=4)
    worker("w-2", queues='["mail"]', slots=3, draining=True)
    for ago in (400, 20, 10):
        job(ago=ago, queue="mail")
    job(ago=-50, queue="mail")
    execution("enqueued", ago=5, queue="mail")
    job("running", ago=-5, queue="mail")
    job(ago=3, queue="lost")
    minute(60, queue="mail", done=50, dead=10)
    minute(600, queue="mail", done=5_000)
    rows = table()
    assert set(rows) == {"mail", "idle", "lost"}
    mail = rows["mail"]
    assert (mail.ready, mail.executions, mail.later, mail.running, mail.capacity, mail.workers) == (
        4,
        1,
        1,
        1,
        4,
        1,
    )
    assert mail.oldest is not None and 400 <= mail.oldest.total_seconds() < 405 and mail.slo_seconds == 300
    assert 10 <= mail.done_per_minute <= 12 and mail.failed_share == pytest.approx(1 / 6)
    assert mail.state == "late" and "5 min" in mail.why and not mail.ready_capped
    assert (rows["lost"].state, rows["lost"].capacity) == ("no worker", 0)
    assert (rows["idle"].state, rows["idle"].trend, rows["idle"].failed_share) == ("ok", "empty", None)
    assert [row.name for row in queue_table(examine().problems)] == ["lost", "mail", "idle"]


def test_where_no_claim_loop_turns_nothing_is_ok() -> None:
    worker("w-1", queues='["mail", "slow"]', poll=900)
    worker("w-2", queues='["mail"]')
    job(ago=20, queue="slow")
    rows = table()
    assert (rows["slow"].state, rows["mail"].state) == ("wedged", "ok")
    assert "do not turn" in rows["slow"].why


def test_a_count_that_was_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "COUNT_LIMIT", 3)
    monkeypatch.setattr(facts, "FAR", {"most": 4, "most_later": 4})
    for priority in (1, 2):
        for _ in range(3):
            job(ago=5, priority=priority)
    (row,) = queue_table()
    assert row.ready == 4 and row.ready_capped


def test_the_trend_compares_what_comes_with_what_goes() -> None:
    assert queues._trend(0, 5, 5) == "empty"
    assert queues._trend(10, 0, 0) == "stands still"
    assert queues._trend(10, 100, 100) == "steady"
    assert queues._trend(10, 700, 60) == "grows 640/min"
    assert queues._trend(120, 0, 60) == "drains in 2 min"
    assert queues._trend(10_001, 0, 60) == "drains in at least 2 h 46 min"


def test_workers_by_their_state() -> None:
    worker("live")
    worker("late", beat=25, poll=25)
    worker("silent", beat=31, poll=31)
    worker("wedged", poll=50)
    worker("draining", draining=True, poll=100)
    worker("stopped", stopped=10)
    found = {row.name: row for row in overview().workers or []}
    assert {name: row.state for name, row in found.items()} == {name: name for name in found}
    assert len(found) == 6 and list(found)[-1] == "stopped"
    assert found["late"].heartbeat_age.total_seconds() == pytest.approx(25, abs=3)


def test_the_overview_has_the_sums() -> None:
    worker(slots=4)
    for queue in ("a", "b"):
        job(ago=5, queue=queue)
    job(ago=-90)
    job("running", ago=-5)
    job("dead", ago=90_000)
    job("failed", ago=60)
    approval(ago=-500)
    minute(60, done=30)
    look = overview()
    assert look.missing == {} and look.totals is not None and look.queues is not None
    totals = look.totals
    assert (totals.ready, totals.later, totals.running, totals.capacity) == (2, 1, 1, 4)
    assert (totals.dead, totals.dead_last_hour, totals.approvals) == (2, 1, 1)
    assert totals.next_at is not None and totals.oldest_approval_at is not None
    assert totals.uncounted == 1 and totals.failed_share is None, "no share of what is not counted"
    assert 5 <= totals.done_per_minute <= 6


def test_a_share_of_failures_is_told_when_all_are_counted() -> None:
    worker(slots=4)
    job("failed", ago=400)
    job("dead", ago=60)
    minute(60, done=30, dead=1)
    job("failed", ago=5)  # the figures may be so much behind
    totals = overview().totals
    assert totals is not None and totals.uncounted == 0
    assert totals.failed_share == pytest.approx(1 / 31)


def test_what_cannot_be_read_is_named_and_is_not_zero() -> None:
    worker()
    run("ALTER TABLE pgjobs_minute RENAME TO elsewhere")
    look = overview()
    assert look.queues is None and look.totals is None and look.workers is not None
    assert "pgjobs_minute" in look.missing["queues"] and look.verdict.state == "unknown"


def test_causes_are_told_apart() -> None:
    for n in range(3):
        job(
            "dead",
            ago=7200 - n,
            fingerprint="f1",
            error_class="Declined",
            last_error=f"card {n} api_key=k{n}",
        )
    job("failed", ago=30, fingerprint="f2", error_class="Fail", queue="other")
    job("dead", ago=20)
    job("succeeded", ago=10, fingerprint="f1")
    run("UPDATE pgjobs_job SET discarded_at = now() WHERE id = %s", job("dead", ago=1, fingerprint="f3"))
    found = error_groups()
    assert found.complete
    assert [(g.fingerprint, g.jobs, g.last_hour) for g in found.groups] == [
        ("", 1, 1),
        ("f2", 1, 1),
        ("f1", 3, 0),
    ]
    declined = found.groups[-1]
    assert declined.message == "card 2 api_key=«redacted»" and declined.error_class == "Declined"
    assert declined.first_seen is not None and declined.last_seen is not None
    assert declined.first_seen < declined.last_seen and declined.oldest_id < declined.newest_id


def test_a_cause_is_as_old_as_the_first_job_that_it_has_ended() -> None:
    """Whatever has become of that job: here the only one was retried and has ended again, on another version."""
    worker("w-1", version="v141", started=3_000)
    job("dead", ago=60, fingerprint="f1", completed_by="w-1")
    assert [cause.fingerprint for cause in read_causes()] == ["f1"]
    [young] = error_groups().groups
    Cause.objects.create(fingerprint="f1", ended_at=Now() - timedelta(hours=3))

    found = error_groups()
    [old] = found.groups
    detail = group_detail("f1")

    assert young.is_new(found.deployed) and young.first_version == "v141"
    assert detail and detail.first_seen == old.first_seen and detail.first_version == old.first_version == ""
    assert old.first_seen is not None and found.at - old.first_seen > timedelta(hours=2)
    assert not old.is_new(found.deployed) and read_causes() == []
    Cause.objects.update(ended_at=Now() + timedelta(hours=3))
    assert error_groups().groups[0].first_seen == young.first_seen, "it only ever goes back"


def read_causes() -> list[NewCause]:
    with Reader(QUEUE) as reader:
        return read_new_causes(reader)


def test_beyond_the_limit_the_newest_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "GROUPS", 3)
    monkeypatch.setattr(errors, "NEWEST", 8)
    for n in range(6):
        job("dead", ago=100 - n, fingerprint=f"f{n}")
        job("failed", ago=100 - n, fingerprint="same")
    found = error_groups()
    assert not found.complete
    assert [(g.fingerprint, g.jobs) for g in found.groups][:1] == [("same", 4)] or len(found.groups) == 3
    assert {g.fingerprint for g in found.groups} <= {"same", "f5", "f4"}


def test_what_the_jobs_of_one_cause_share() -> None:
    worker("w-1", version="v141")
    worker("w-2", version="v140")
    entry = '[{"attempt": 1, "message": "no", "traceback": "password=x secret4711"}]'
    for n in range(7):
        job(
            "dead",
            fingerprint="f1",
            completed_by="w-1" if n < 5 else "w-2",
            errors=entry,
            payload='{"token": "secret4711"}',
        )
    found = group_detail("f1")
    assert found is not None and found.looked_at == 7
    assert found.shared["worker"] == [("w-1", 5), ("w-2", 2)]
    assert found.shared["code version"] == [("v141", 5), ("v140", 2)]
    assert found.newest_ids == sorted(found.newest_ids, reverse=True) and len(found.oldest_ids) == 5
    assert found.sample["traceback"] == "password=«redacted» «redacted»"
    assert group_detail("none") is None


def test_series_have_every_minute_and_its_percentiles() -> None:
    minute(0, done=7)
    minute(600, queue="mail", dead=3)
    run("UPDATE pgjobs_minute SET wait_counts = '{0,0,0,8}', run_counts = '{2}' WHERE dead = 3")
    points = throughput(minutes=60)
    assert len(points) == 60 and points == sorted(points, key=lambda point: point.at)
    assert sum(point.done for point in points) == 7 and sum(point.bad for point in points) == 3
    (bad,) = [point for point in points if point.dead]
    assert bad.wait_p50 == pytest.approx(0.06) and bad.run_p95 is not None and bad.run_p95 < 0.01
    assert [p.wait_p50 for p in points if not p.done and not p.bad] == [None] * 58
    assert sum(point.done for point in throughput(minutes=60, queue="mail")) == 0
    day = throughput(minutes=1440)
    assert 115 <= len(day) <= 121 and sum(point.done for point in day) == 7


def test_a_table_that_is_not_there_raises() -> None:
    run("ALTER TABLE pgjobs_minute RENAME TO elsewhere")
    with pytest.raises(DatabaseError):
        throughput()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")  # the transaction around is whole


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (190, "3 min 10 s"),
        (7300, "2 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_numbers(settings: Any) -> None:
    assert (counted(10_001, 10_000), counted(10_000, 10_000)) == ("10,000+", "10,000")
    assert (many(1, "job"), many(2, "job"), many(1001, "job", 1000)) == ("1 job", "2 jobs", "1,000+ jobs")
