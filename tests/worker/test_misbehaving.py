"""Handlers that misbehave harm neither the next job nor the worker's own connections."""

from collections.abc import Callable

import pytest
from django.db import connection

from pgjobs.models import Job
from tests.jobsapp.jobs import effect, ok
from tests.jobsapp.misbehaving import (
    ERRORS,
    INSIDE_FINISH,
    MISDEEDS,
    RESULTS,
    finish_and_linger,
    finish_with_result,
    inspect_surroundings,
    misbehave,
    raise_error,
    raise_error_async,
    return_result,
    spoil_finish,
)
from tests.jobsapp.models import Effect
from tests.support.waiting import wait_until
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import deeds, row, sessions, wait_ended, wait_for_deed

pytestmark = pytest.mark.workers

CLEAN = {
    "statement_timeout": "0",
    "search_path": '"$user", public',
    "isolation": "read committed",
    "debug": False,
    "advisory_locks": 0,
    "autocommit": True,
    "in_atomic_block": False,
    "time_zone": "UTC",
    "language": "en-us",
}
LEFT_BEHIND = {
    "begin_and_leave": "left a transaction open",
    "break_and_leave": "left a transaction open",
    "enter_atomic_and_leave": "left an atomic block open",
    "turn_autocommit_off": "left autocommit off",
    "leave_marks": "left execute_wrappers",
}


def test_what_a_handler_leaves_behind_does_not_reach_the_next(spawn: Spawn) -> None:
    """One slot, so that each job runs in the thread of the one before."""
    workers = spawn(concurrency=1, settings={"NOTIFY": False}, env={"PGAPPNAME": "bookkeeping"})
    [child] = workers.child_pids
    wait_ended([ok.enqueue()])
    before = set(sessions("bookkeeping"))
    pairs = [(how, misbehave.enqueue(how=how), inspect_surroundings.enqueue()) for how in MISDEEDS]

    ended = wait_ended([job for _, *jobs in pairs for job in jobs])

    assert {how: ended[job.pk].result for how, job, _ in pairs} == {how: how for how in MISDEEDS}
    found = {how: ended[after.pk].result for how, _, after in pairs}
    assert found == dict.fromkeys(MISDEEDS, CLEAN)
    assert {job.attempt_count for job in ended.values()} == {1}
    assert not Effect.objects.filter(key__startswith="left").exists(), "what was left open is rolled back"
    for how, job, _ in pairs:
        told = f"job={job.pk} (jobsapp.misbehave) {LEFT_BEHIND.get(how, 'left')}"
        assert (told in workers.output()) == (how in LEFT_BEHIND)
    assert before & set(sessions("bookkeeping")), "the sessions of the bookkeeping lived through it"
    assert "service=" not in workers.output(), "no service of the worker met an error"
    assert workers.child_pids == [child]


def test_a_spoiled_finish_is_no_success(spawn: Spawn) -> None:
    spawn(concurrency=1)
    jobs = {how: spoil_finish.enqueue(key=how, how=how) for how in INSIDE_FINISH}
    wait_until(
        lambda: all(row(job.pk).errors for job in jobs.values()), message="the end of the first attempts"
    )

    assert {how: [deed.attempt for deed in deeds(how)] for how in jobs} == {how: [] for how in jobs}
    first = {how: row(job.pk).errors[0] for how, job in jobs.items()}
    assert {entry["kind"] for entry in first.values()} == {"error"}
    assert first["close"]["type"] == first["close_and_connect"]["type"] == "pgjobs.exceptions.CommitLost"
    Job.objects.filter(status="pending").update(
        available_at="2000-01-01T00:00Z"
    )  # not to wait for the backoff

    ended = wait_ended(jobs.values())

    assert {(job.status, job.attempt_count) for job in ended.values()} == {("succeeded", 2)}
    assert {how: [deed.attempt for deed in deeds(how)] for how in jobs} == {how: [2] for how in jobs}


def test_errors_of_every_kind_are_stored_and_end_only_the_attempt(spawn: Spawn) -> None:
    workers = spawn(concurrency=2)
    [child] = workers.child_pids
    plain = {which: raise_error.enqueue(which=which) for which in ERRORS}
    on_loop = {which: raise_error_async.enqueue(which=which) for which in ERRORS}

    ended = wait_ended([*plain.values(), *on_loop.values()])

    for jobs in (plain, on_loop):
        seen = {which: ended[job.pk] for which, job in jobs.items()}
        assert {(job.status, job.attempt_count, len(job.errors)) for job in seen.values()} == {("dead", 1, 1)}
        types = {which: job.errors[0]["type"].rpartition(".")[2] for which, job in seen.items()}
        assert types == {
            "sys_exit": "SystemExit",
            "keyboard_interrupt": "KeyboardInterrupt",
            "generator_exit": "GeneratorExit",
            "cancelled": "CancelledError",
            "unrenderable": "Unrenderable",
            "huge": "ValueError",
            "nul": "ValueError",
            "surrogate": "ValueError",
            "recursion": "RecursionError",
            "crowd": "ExceptionGroup",
        }
        assert max(len(job.last_error) for job in seen.values()) < 3_000
        assert max(len(job.errors[0]["traceback"]) for job in seen.values()) <= 16_000
        assert "cannot be rendered" in seen["unrenderable"].last_error
        assert "a\ufffdb" in seen["nul"].last_error and "a\ufffdb" in seen["surrogate"].last_error
    wait_ended([ok.enqueue()])
    assert workers.child_pids == [child]


def test_results_that_cannot_be_stored_fail_with_a_reason(spawn: Spawn) -> None:
    spawn(concurrency=2)
    returned = {which: return_result.enqueue(which=which) for which in RESULTS}
    finished = {which: finish_with_result.enqueue(which=which) for which in RESULTS}

    ended = wait_ended([*returned.values(), *finished.values()])

    assert {(job.status, job.attempt_count) for job in ended.values()} == {("failed", 1)}
    assert all(job.note.startswith("result") for job in ended.values()), [job.note for job in ended.values()]
    assert "1,500,002 bytes" in ended[returned["large"].pk].note
    assert not Effect.objects.exists(), "a finish whose result is refused has no effects"


def test_work_after_finish_is_no_lost_lease(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    door = gate("door")
    workers = spawn("--heartbeat-seconds", "0.2")
    job = finish_and_linger.enqueue(key="long", gate=str(door))
    wait_ended([job])
    heartbeats = heartbeat_count(workers.names[0])
    wait_until(lambda: heartbeats() > 3, message="renewals after the end")

    door.open()

    wait_for_deed("long:end")
    assert "lost its lease" not in workers.output()
    assert (row(job.pk).status, row(job.pk).result) == ("succeeded", "done")


def heartbeat_count(name: str) -> Callable[[], int]:
    """A count of the heartbeats of a worker from now on."""
    from pgjobs.models import Worker

    seen = set()

    def count() -> int:
        seen.add(Worker.objects.get(name=name).heartbeat_at)
        return len(seen)

    return count


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.status = 'succeeded' AND NEW.payload ->> 'value' = 'refused' THEN RAISE 'not this one'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON pgjobs_job FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def test_a_row_that_the_database_refuses_holds_up_no_other(spawn: Spawn) -> None:
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
    try:
        refused = ok.using(max_crashes=1).enqueue(value="refused")
        others = [ok.enqueue(value=n) for n in range(20)]
        workers = spawn("--lease-seconds", "1.5", "--heartbeat-seconds", "0.4", concurrency=5)
        late = effect.enqueue(key="late")

        ended = wait_ended([refused, *others, late])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER refuse ON pgjobs_job; DROP FUNCTION refuse()")

    assert {ended[job.pk].status for job in [*others, late]} == {"succeeded"}
    assert ended[refused.pk].status == "dead"
    assert f"job={refused.pk} its end cannot be written" in workers.output()
