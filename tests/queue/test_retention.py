"""Retention of jobs: what ended long ago leaves the table whole, in bounded steps, and nothing else does."""

import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from pgjobs.connections import rows
from pgjobs.models import ArchivedJob, Execution, Job, JobResult, Wait
from pgjobs.queue import retention
from pgjobs.queue.partitions import create_months
from pgjobs.queue.retention import LOOK_BACK_EVERY, Policy, Walk
from tests.faces.rows import ENDED, make_job
from tests.leases.plans import both_ways, plan_of
from tests.queue.ended import A_DAY, DAY, age, archived, fetch, live, old, pruned, without_months
from tests.support.waiting import wait_until
from tests.support.workers import Spawner
from tests.worker.conftest import hurried

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)


@pytest.fixture
def no_months() -> Iterator[None]:
    with without_months():
        yield


# What goes, and what stays


@pytest.mark.parametrize("status", ENDED)
def test_an_old_job_moves_with_all_that_it_carried(status: str) -> None:
    job = old(
        status, payload={"n": 1}, result=[2], errors=[{"attempt": 1}], last_error="e", note="n", queue="q",
        progress={"done": 1}, priority=7, idempotency_key="k", crash_count=1,
    )  # fmt: skip
    before = Job.objects.filter(pk=job.pk).values().get()

    assert pruned() == 1

    after = ArchivedJob.objects.filter(pk=job.pk).values().get()
    assert live() == set()
    assert {name: before[name] for name in after if name != "archived_at"} == {
        name: value for name, value in after.items() if name != "archived_at"
    }
    assert abs((timezone.now() - after["archived_at"]).total_seconds()) < 60


def test_the_archive_has_every_column_of_a_job_but_the_lease() -> None:
    def columns(table: str) -> set[tuple[str, str]]:
        return set(
            fetch(
                "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                table,
            )
        )

    job, archive = columns("pgjobs_job"), columns("pgjobs_archivedjob")
    assert {name for name, _ in job - archive} == {"lease_owner", "lease_token", "lease_expires_at"}
    assert {name for name, _ in archive - job} == {"archived_at"}
    assert {field.column for field in ArchivedJob._meta.concrete_fields} == {name for name, _ in archive}


@pytest.mark.parametrize("status", ["pending", "running"])
def test_unfinished_jobs_stay_however_old(status: str) -> None:
    old(status, 900)

    assert pruned() == 0 and len(live()) == 1


def test_the_age_counts_from_the_end() -> None:
    job = old(days=0.9)
    Job.objects.filter(pk=job.pk).update(created_at="2020-01-01T00:00:00Z")
    assert pruned() == 0
    age(job.pk, 0.2)
    assert pruned() == 1


@pytest.mark.parametrize(
    ("seconds", "failed", "gone"),
    [
        (DAY, 5 * DAY, {"succeeded", "cancelled"}),
        (5 * DAY, DAY, {"failed", "dead"}),
        (None, DAY, {"failed", "dead"}),
        (DAY, None, {"succeeded", "cancelled"}),
        (1e300, DAY, {"failed", "dead"}),
        (None, None, set()),
    ],
)
def test_failures_may_be_kept_for_another_time(
    seconds: float | None, failed: float | None, gone: set[str]
) -> None:
    by_status = {old(status).pk: status for status in ENDED}
    pruned(Policy(seconds, failed, "archive"))

    assert {by_status[pk] for pk in archived()} == gone
    assert {by_status[pk] for pk in live()} == set(ENDED) - gone


def test_without_a_setting_nothing_moves() -> None:
    assert Policy.from_settings().shortest is None


def test_the_settings_are_the_policy(settings: Any) -> None:
    settings.PGJOBS = {"JOB_RETENTION_SECONDS": 60}
    assert Policy.from_settings() == Policy(60, 60, "archive", None)
    settings.PGJOBS = {
        "JOB_RETENTION_FAILED_SECONDS": 90,
        "JOB_RETENTION": "delete",
        "JOB_ARCHIVE_RETENTION_SECONDS": 99,
    }
    assert Policy.from_settings() == Policy(None, 90, "delete", 99)


def test_delete_keeps_nothing() -> None:
    old()
    assert pruned(Policy(DAY, DAY, "delete")) == 1
    assert live() == archived() == set()


def test_results_by_key_stay() -> None:
    job = old(idempotency_key="invoice-1")
    JobResult.objects.create(idempotency_key="invoice-1", job=job, produced_by="w", result=5)
    pruned()

    assert JobResult.objects.get().result == 5


def awaited_by(job: Job) -> Wait:
    execution = Execution.objects.create(workflow_name="w", status="waiting")
    return Wait.objects.create(execution=execution, step_id="s", kind="job", ordinal=0, target_id=job.pk)


def test_a_job_that_somebody_still_waits_for_is_kept() -> None:
    awaited, other = old(awaited=True), old()
    wait = awaited_by(awaited)
    assert pruned() == 1 and live() == {awaited.pk}

    Wait.objects.filter(pk=wait.pk).update(resolved_at=timezone.now())
    assert pruned() == 1 and archived() == {awaited.pk, other.pk}


def test_a_child_execution_of_the_same_number_keeps_no_job() -> None:
    job = old()
    Wait.objects.filter(pk=awaited_by(job).pk).update(kind="child")
    assert pruned() == 1


@pytest.mark.parametrize("at", ["-infinity", "0044-03-15 00:00:00+00"])
def test_an_end_outside_of_history_is_left_alone(at: str) -> None:
    job = old()
    fetch("UPDATE pgjobs_job SET completed_at = %s WHERE id = %s", at, job.pk)
    assert pruned() == 0 and old() and pruned() == 1


# The walk


def test_steps_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "WINDOW", 2)
    made = [old().pk for _ in range(5)]
    walk = Walk(using="default")
    steps = [walk.step(A_DAY) for _ in range(3)]

    assert steps == [(2, False), (2, False), (1, True)]
    assert archived() == set(made)


def test_the_walk_steps_over_what_stays_and_ends_where_all_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "WINDOW", 3)
    kept = [old("pending").pk, old("pending").pk, make_job("succeeded").pk]
    gone = [old().pk, old().pk]
    young = [make_job("succeeded").pk for _ in range(9)]
    walk = Walk(using="default")

    assert walk.step(A_DAY) == (0, False) and walk.step(A_DAY) == (2, False)
    assert walk.step(A_DAY) == (0, True), "a window of nothing but young rows is the end of a pass"
    assert archived() == set(gone) and live() == {*kept, *young}


def test_the_next_pass_begins_at_the_oldest_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, stays = old(), make_job("succeeded")
    walk = Walk(using="default")
    assert walk.step(A_DAY) == (1, True)
    late = old()
    Job.objects.filter(pk=late.pk).update(
        id=gone.pk
    )  # as a transaction that took its id early, and commits now
    age(stays.pk, 2)

    assert walk.step(A_DAY) == (1, True) and live() == {gone.pk}, "it looked before the oldest that was left"
    for _ in range(LOOK_BACK_EVERY):
        walk.step(Policy(DAY, DAY, "delete"))
    assert live() == set(), "nor did it look back"


@both_ways
def test_a_table_without_old_rows_costs_one_window(planned: Any) -> None:
    fetch("TRUNCATE pgjobs_job CASCADE")  # also of what earlier tests left dead
    fetch(
        "INSERT INTO pgjobs_job (job_type, status, completed_at)"
        " SELECT 't', 'succeeded', now() FROM generate_series(1, 20000)"
    )
    fetch("ANALYZE pgjobs_job")
    with planned():
        plan = plan_of(Walk(using="default").step, A_DAY)

    assert plan.seq_scans() == [] and plan.indexes() == {"pgjobs_job_pkey"}
    assert plan.buffers < 100, str(plan)


@both_ways
def test_the_move_is_by_primary_key(planned: Any) -> None:
    fetch("TRUNCATE pgjobs_job CASCADE")
    fetch(
        "INSERT INTO pgjobs_job (job_type, status, created_at, completed_at) SELECT 't', 'succeeded',"
        " now() - interval '9 days', now() - interval '9 days' FROM generate_series(1, 30000)"
    )
    fetch("ANALYZE pgjobs_job")
    [[month]] = fetch("SELECT to_char((now() - interval '9 days') AT TIME ZONE 'UTC', 'YYYYMM')")
    create_months([month], using="default")
    params = {**A_DAY.params(), "ids": sorted(live())[:500]}
    with planned():
        plan = plan_of(rows, "default", retention._RETIRE_SQL["archive"], params)

    assert "pgjobs_job" not in plan.seq_scans(), str(plan)
    assert plan.buffers < 500 * 20, str(plan)


@in_sessions
def test_a_row_that_another_table_refers_to_stays_and_is_not_tried_all_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = [old().pk for _ in range(20)]
    kept = {made[3], made[11]}
    fetch("CREATE TABLE invoice (job_id bigint REFERENCES pgjobs_job DEFERRABLE INITIALLY DEFERRED)")
    try:
        fetch("INSERT INTO invoice SELECT unnest(%s)", sorted(kept))
        walk = Walk(using="default")
        with caplog.at_level(logging.ERROR, "pgjobs.retention"):
            while not walk.step(A_DAY).pass_ended:
                pass
            assert live() == kept and archived() == set(made) - kept
            assert len(caplog.records) == 2 and f"job {made[3]} cannot leave" in caplog.text
            assert walk.step(A_DAY) == (0, True) and len(caplog.records) == 2
    finally:
        fetch("DROP TABLE invoice")


# The command


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("pgjobs_prune", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_goes_by_the_settings(settings: Any) -> None:
    with pytest.raises(CommandError, match="Everything is kept"):
        command()
    settings.PGJOBS = {"JOB_RETENTION_SECONDS": DAY, "WORKFLOW_RETENTION_SECONDS": DAY}
    old()
    Execution.objects.create(workflow_name="w", status="failed", completed_at="2020-01-01T00:00:00Z")

    assert command().splitlines() == ["jobs archived: 1", "executions archived: 1"]


def test_the_command_line_comes_before_the_settings(settings: Any, no_months: None) -> None:
    settings.PGJOBS = {"JOB_RETENTION_SECONDS": 90 * DAY, "JOB_RETENTION_FAILED_SECONDS": 90 * DAY}
    dead = old("dead", 5)
    old("succeeded", 5)
    create_months(["202001"], using="default")

    assert command("--days", "3", "--retention", "delete").splitlines() == ["jobs deleted: 1"]
    assert live() == {dead.pk}
    told = command("--failed-days", "3", "--archive-days", "100").splitlines()
    assert told == ["jobs archived: 1", "months of the archive dropped: 202001"]


@pytest.mark.parametrize("arguments", [("--days", "-1"), ("--days", "nan"), ("--months-ahead", "-1")])
def test_arguments_that_make_no_sense(arguments: tuple[str, str]) -> None:
    with pytest.raises(CommandError, match=r"give a number"):
        command(*arguments)


# In a worker


@pytest.mark.workers
def test_workers_do_it_between_two_claims(spawn_workers: Spawner, no_months: None) -> None:
    jobs = [make_job(payload={}).pk for _ in range(30)]
    rules = {"JOB_RETENTION_SECONDS": 0.5}
    spawn_workers(env=hurried(rules))

    wait_until(
        lambda: archived() == set(jobs), 30, lambda: f"the archive to hold {len(jobs)}, not {archived()}"
    )
    assert live() == set()
    assert set(ArchivedJob.objects.values_list("status", "attempt_count")) == {("succeeded", 1)}


def test_the_chore_costs_nothing_when_everything_is_kept(
    settings: Any, django_assert_num_queries: Any
) -> None:
    from pgjobs.worker.pruner import Pruner

    settings.PGJOBS = {"AUDIT_DAYS": None}
    with django_assert_num_queries(0):
        pruner = Pruner(using="default")
        pruner.run_if_due()
    assert pruner.due == float("inf")
