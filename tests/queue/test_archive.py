"""The archive of jobs: its months, those who use it at the same time, and how its jobs are found."""

import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.test import Client

from pgjobs.models import ArchivedJob, Job
from pgjobs.queue import partitions, retention
from pgjobs.queue.archive import find_job
from pgjobs.queue.control import VerbOutcome, cancel, retry
from pgjobs.queue.partitions import create_months, drop_months, following, months
from pgjobs.queue.retention import Policy, Walk
from tests.faces.rows import make_job
from tests.leases.sessions import Session, sessions, transaction_open
from tests.queue.ended import (
    A_DAY,
    DAY,
    age,
    archived,
    archived_in,
    ended_at,
    fetch,
    live,
    old,
    pruned,
    without_months,
)

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)


@pytest.fixture
def no_months() -> Iterator[None]:
    with without_months():
        yield


# Months


def test_months_follow_each_other() -> None:
    assert [following(month) for month in ("202601", "202609", "202611", "202612")] == [
        "202602", "202610", "202612", "202701",
    ]  # fmt: skip


def test_each_job_lies_in_the_month_of_its_end_whatever_the_time_zone(no_months: None) -> None:
    fetch("SET LOCAL TIME ZONE 'Pacific/Auckland'")
    jobs = {
        "202501": ended_at("2025-01-31T23:59:59.999999+00:00"),
        "202502": ended_at("2025-02-01T00:00:00+00:00"),
        "202412": ended_at("2025-01-01T03:00:00+09:00"),
    }
    assert pruned() == 3

    assert months(using="default") == sorted(jobs)
    for month, job in jobs.items():
        assert archived_in(month) == [job.pk]


def test_a_partition_lies_in_the_schema_of_the_archive(no_months: None) -> None:
    fetch("CREATE SCHEMA tenant")
    fetch("SET LOCAL search_path = tenant, public")
    create_months(["202501"], using="default")

    assert fetch("SELECT schemaname FROM pg_tables WHERE tablename = 'pgjobs_archivedjob_y2025m01'") == [
        ("public",)
    ]


def test_old_months_are_dropped_whole(no_months: None) -> None:
    [[now]] = fetch("SELECT date_trunc('month', now() AT TIME ZONE 'UTC')")
    this = f"{now:%Y%m}"
    create_months(["202001", "202002", this], using="default")
    fetch("CREATE TABLE pgjobs_archivedjob_mine PARTITION OF pgjobs_archivedjob"
          " FOR VALUES FROM ('2019-01-01 00:00+00') TO ('2019-02-01 00:00+00')")  # fmt: skip

    assert drop_months(400 * DAY, using="default") == ["202001", "202002"]
    assert months(using="default") == [this], "or a month that is not over"
    assert fetch("SELECT to_regclass('pgjobs_archivedjob_mine') IS NOT NULL") == [(True,)]
    assert drop_months(0, using="default") == [] and months(using="default") == [this]


def test_what_would_be_dropped_at_once_is_not_archived(no_months: None) -> None:
    past, recent = old(days=900), old(days=2)

    assert pruned(Policy(DAY, DAY, "archive", 400 * DAY)) == 2
    assert archived() == {recent.pk} and len(months(using="default")) == 1 and find_job(past.pk) is None


@in_sessions
def test_two_that_make_the_same_month(no_months: None) -> None:
    with sessions("first", "second") as (first, second):
        making = transaction_open(first, lambda: create_months(["202501"], using="default"))
        waiting = second.start(create_months, ["202501", "202502"], using="default")
        second.wait_blocked()
        assert making.finish() == ["202501"]
        assert waiting.result(30) == ["202502"]
    assert months(using="default") == ["202501", "202502"]


@in_sessions
def test_a_reader_of_the_archive_holds_up_neither_the_making_nor_the_moving_of_rows(no_months: None) -> None:
    create_months(["202501"], using="default")
    ended_at("2025-02-03T00:00:00+00:00")
    with sessions("reader") as (reader,):
        reading = transaction_open(reader, lambda: list(ArchivedJob.objects.all()))
        assert pruned() == 1
        reading.finish()


@in_sessions
def test_a_drop_that_a_reader_holds_up_gives_in(no_months: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "LOCK_TIMEOUT", "50ms")
    create_months(["202001"], using="default")
    with sessions("reader") as (reader,):
        reading = transaction_open(reader, lambda: list(ArchivedJob.objects.all()))
        with pytest.raises(DatabaseError, match="lock timeout"):
            drop_months(DAY, using="default")
        reading.finish()
    assert drop_months(DAY, using="default") == ["202001"]


@in_sessions
def test_a_locked_archive_ends_the_pass_and_no_job_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(partitions, "LOCK_TIMEOUT", "50ms")
    job = old()
    walk = Walk(using="default")
    with sessions("owner") as (owner,):
        held = transaction_open(
            owner, lambda: connection.cursor().execute("LOCK pgjobs_archivedjob IN ACCESS EXCLUSIVE MODE")
        )
        assert walk.step(A_DAY) == (0, True) == walk.step(A_DAY) and live() == {job.pk}
        assert caplog.text.count("cannot be archived now") == 1
        held.finish()
    assert walk.step(A_DAY) == (1, True) and archived() == {job.pk}


@pytest.fixture
def poor_role() -> Iterator[str]:
    """A role that may use the tables and make none."""
    name = f"pgjobs_poor_{uuid.uuid4().hex[:8]}"
    fetch(f"CREATE ROLE {name}")
    fetch(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
    fetch("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    yield name


def test_a_role_that_may_make_no_tables_is_told_the_cure(
    no_months: None, poor_role: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = old()
    walk = Walk(using="default")
    fetch(f"SET LOCAL ROLE {poor_role}")
    assert walk.step(A_DAY) == (0, True) and live() == {job.pk}
    assert "permission denied" in caplog.text and "pgjobs_prune --months-ahead" in caplog.text
    with pytest.raises(CommandError, match="permission denied"):
        call_command("pgjobs_prune", "--days", "1")

    fetch("RESET ROLE")
    out = StringIO()
    call_command("pgjobs_prune", "--months-ahead", "1", stdout=out)
    assert len(months(using="default")) == 2 and "made: 2" in out.getvalue()
    age(job.pk, -1.99997)  # to some seconds ago: into the month that is there, also on its first day
    fetch(f"SET LOCAL ROLE {poor_role}")
    assert walk.step(Policy(1, 1, "archive")) == (1, True)
    fetch("RESET ROLE")


# Beside others


@in_sessions
def test_a_retry_that_comes_first_wins() -> None:
    job, other = old("dead"), old("dead")
    with sessions("operator") as (operator,):
        retrying = transaction_open(operator, lambda: retry([job.pk], actor="ann"))
        assert pruned() == 1, "the other one, without waiting"
        retrying.finish()
    assert archived() == {other.pk} and Job.objects.get().status == "pending"


@in_sessions
def test_a_retry_that_comes_second_learns_that_the_job_is_archived() -> None:
    job = old("dead")
    create_months([f"{Job.objects.get().completed_at:%Y%m}"], using="default")
    with sessions("pruner", "operator") as (pruner, operator):
        pruning = transaction_open(pruner, pruned)
        retrying: Future[list[VerbOutcome]] = operator.start(retry, [job.pk], actor="ann")
        operator.wait_blocked()
        pruning.finish()
        [outcome] = retrying.result(30)
    assert not outcome.done and "was archived on" in outcome.message
    assert live() == set() and archived() == {job.pk}


@in_sessions
def test_a_reader_by_id_finds_the_job_at_every_moment() -> None:
    job = old()
    create_months([f"{Job.objects.get().completed_at:%Y%m}"], using="default")
    with sessions("pruner") as (pruner,):
        pruning = transaction_open(pruner, pruned)
        assert isinstance(find_job(job.pk), Job)
        pruning.finish()
    assert isinstance(find_job(job.pk), ArchivedJob)


@in_sessions
def test_many_that_prune_at_once_move_each_job_once(monkeypatch: pytest.MonkeyPatch, no_months: None) -> None:
    monkeypatch.setattr(retention, "WINDOW", 50)
    fetch(
        "INSERT INTO pgjobs_job (job_type, status, created_at, completed_at)"
        " SELECT 't', 'succeeded', at, at FROM (SELECT now() - make_interval(days => 2 + n %% 90) AS at"
        " FROM generate_series(1, 3000) AS n) AS times"
    )
    everything = live()

    def prune(session: Session) -> "Future[int]":
        return session.start(pruned)

    with sessions("a", "b", "c", "d") as pruners:
        moved = [running.result(60) for running in [prune(session) for session in pruners]]

    assert sum(moved) + pruned() == 3000
    assert archived() == everything and ArchivedJob.objects.count() == 3000 and live() == set()


# What people see


def test_the_api_finds_jobs_by_id_wherever_they_are() -> None:
    here, there = make_job(), old(payload={"n": 1})
    pruned()

    assert find_job(here.pk) == here and find_job(10**9) is None
    found = find_job(there.pk)
    assert isinstance(found, ArchivedJob) and found.payload == {"n": 1}
    assert str(found) == f"archived job {there.pk} (jobsapp.ok)"


def test_an_archived_job_is_refused_by_the_verbs() -> None:
    job = old("dead")
    pruned()
    [[day]] = fetch("SELECT to_char(archived_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') FROM pgjobs_archivedjob")

    assert retry([job.pk, 10**9], actor="ann") == [
        VerbOutcome(
            job.pk, False, f"it is dead and was archived on {day}; archived jobs cannot be retried; "
            "enqueue a new job with its payload instead", "dead",
        ),
        VerbOutcome(10**9, False, "there is no such job", None),
    ]  # fmt: skip
    [outcome] = cancel([job.pk], actor="ann")
    assert outcome.message == f"it is dead and was archived on {day}; archived jobs cannot be cancelled"
    assert live() == set()


@pytest.fixture
def staff(admin_client: Client) -> Client:
    return admin_client


def test_the_admin_leads_to_archived_jobs_by_id(staff: Client) -> None:
    job = old("dead", payload={"order": "4711"}, last_error="<b>no</b> luck")
    pruned()
    page = f"/admin/pgjobs/archivedjob/{job.pk}/change/"

    for address in (f"/admin/pgjobs/job/{job.pk}/change/", f"/admin/pgjobs/job/?q={job.pk}"):
        response = staff.get(address)
        assert (response.status_code, response.headers["Location"]) == (302, page)
    text = staff.get(page).content.decode()
    assert "4711" in text and "&lt;b&gt;no&lt;/b&gt; luck" in text and "<b>no</b>" not in text
    assert "Retry" not in text and 'name="_save"' not in text
    refused = staff.post(f"/admin/pgjobs/job/{job.pk}/retry/", {"expected": "dead:1"}, follow=True)
    assert "archived jobs cannot be retried" in refused.content.decode()
    assert staff.get("/admin/pgjobs/archivedjob/").headers["Location"] == "/admin/pgjobs/job/"
    assert "archivedjob" not in staff.get("/admin/").content.decode()


@pytest.mark.parametrize("term", ["0", "9" * 30, str(2**63), "x", "²"])
def test_ids_that_nobody_has(staff: Client, term: str) -> None:
    assert staff.get("/admin/pgjobs/job/", {"q": term}).status_code == 200
    assert staff.get(f"/admin/pgjobs/job/{term}/change/").status_code in (302, 404)


def test_the_archive_is_for_those_who_may_see_jobs(client: Client, django_user_model: Any) -> None:
    job = old()
    pruned()
    client.force_login(django_user_model.objects.create_user("blind", is_staff=True))

    assert client.get(f"/admin/pgjobs/archivedjob/{job.pk}/change/").status_code == 403
    assert client.get("/admin/pgjobs/job/", {"q": str(job.pk)}).status_code == 403
    assert client.get(f"/admin/pgjobs/job/{job.pk}/change/").status_code == 403
