"""A worker's own sessions keep their statements; whatever comes between, the work is done without."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from pgjobs import sessions
from pgjobs.connections import rows
from tests.jobsapp.jobs import hold, ok
from tests.support.own_database import QUEUE
from tests.support.waiting import wait_until
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import row, wait_ended, wait_for_deed
from tests.worker.observation import sessions as observed

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.unprepared]

KEPT = "SELECT count(*) FROM pg_prepared_statements"


@pytest.fixture(autouse=True)
def nothing_refused() -> Iterator[None]:
    yield
    sessions._refused.clear()


def in_a_service(work: Callable[[], Any]) -> Any:
    """In a thread like those of a worker's services."""

    def kept() -> Any:
        sessions.keep_statements(QUEUE)
        return work()

    return in_a_thread(kept)


def in_a_thread(work: Callable[[], Any]) -> Any:
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(work())
        finally:
            connections[QUEUE].close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    [answer] = answers
    return answer


def asked(sql: str = "SELECT %(n)s::int + 1", n: int = 1) -> Any:
    return rows(QUEUE, sql, {"n": n}, often=True)[0][0]


def plainly(sql: str) -> Any:
    with connections[QUEUE].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()


def done(sql: str) -> None:
    with connections[QUEUE].cursor() as cursor:
        cursor.execute(sql)


def test_statements_are_kept_and_planned_by_index() -> None:
    def work() -> Any:
        asked()
        before = [asked(n=n) for n in range(5)]
        settings = {name: plainly(f"SHOW {name}")[0] for name in sessions.PLANNING}
        return before, plainly(KEPT)[0], settings

    assert in_a_service(work) == ([1, 2, 3, 4, 5], 1, sessions.PLANNING)


def test_other_threads_and_other_projects_choices_keep_nothing(settings: Any) -> None:
    assert [asked(n=n) for n in range(5)] and not sessions.keeps(QUEUE)

    settings.PGJOBS = {**settings.PGJOBS, "PREPARE": False}
    assert in_a_service(lambda: ([asked(n=n) for n in range(3)], plainly(KEPT)[0])) == ([1, 2, 3], 0)


def test_nothing_is_kept_on_a_session_that_was_introduced_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a pooler: it answers a new client with a number of its own."""
    monkeypatch.setattr(sessions, "_PLAN_SO", sessions._PLAN_SO.replace("pid = %s", "pid + 1 = %s"))

    def work() -> Any:
        return [asked(n=n) for n in range(3)], sessions.keeps(QUEUE), plainly("SHOW plan_cache_mode")[0]

    assert in_a_service(work) == ([1, 2, 3], False, "auto")


def test_a_statement_that_is_gone_is_sent_in_full(caplog: pytest.LogCaptureFixture) -> None:
    """What a pooler does that passes its server's number on: the next transaction is another session's."""

    def work() -> Any:
        asked()
        done("DO $$ BEGIN DEALLOCATE ALL; END $$")
        return [asked(n=n) for n in range(3)], sessions.keeps(QUEUE)

    assert in_a_service(work) == ([1, 2, 3], False)
    assert in_a_service(lambda: ([asked(n=n) for n in range(3)], sessions.keeps(QUEUE))) == ([1, 2, 3], False)
    assert "nothing is kept from now on" in caplog.text


def test_a_session_that_keeps_is_asked_for_its_health_as_others_are() -> None:
    """Of a web process with ``prepare_threshold``, at the first statement of a request."""

    def work() -> Any:
        asked()
        own = connections[QUEUE]
        with own.copy().cursor() as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [own.connection.info.backend_pid])
            other.close()
            other.db.close()
        own.health_check_enabled, own.health_check_done = True, False
        return asked()

    assert in_a_service(work) == 2


def test_a_schema_that_changes_under_a_kept_statement() -> None:
    def work() -> Any:
        done("CREATE TABLE kept_sample AS SELECT 1 AS number")
        try:
            first = rows(QUEUE, "SELECT * FROM kept_sample", {}, often=True)
            done("ALTER TABLE kept_sample ADD word text DEFAULT 'new'")
            return first, rows(QUEUE, "SELECT * FROM kept_sample", {}, often=True)
        finally:
            done("DROP TABLE kept_sample")

    assert in_a_service(work) == ([(1,)], [(1, "new")])
    assert not sessions._refused.is_set(), "the next session keeps them again"


def test_enqueue_is_prepared_where_the_project_says_so() -> None:
    kept = "SELECT count(*), sum(generic_plans + custom_plans) FROM pg_prepared_statements WHERE statement LIKE %s"

    def work() -> Any:
        own = connections[QUEUE]
        own.settings_dict = {
            **own.settings_dict,
            "OPTIONS": {**own.settings_dict["OPTIONS"], "prepare_threshold": 0},
        }
        made = [ok.enqueue(value=n).payload for n in range(3)]
        with own.cursor() as cursor:
            cursor.execute(kept, ["%INSERT INTO pgjobs_job%"])
            return made, cursor.fetchone()

    assert in_a_thread(work) == ([{"value": n} for n in range(3)], (1, 3))


@pytest.mark.workers
def test_the_settler_is_ready_before_the_first_job_ends(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    door = gate("door")
    spawn(env={"PGAPPNAME": "ready"})
    job = hold.enqueue(key="held", gate=str(door))
    wait_for_deed("held:start")

    wait_until(
        lambda: [query for query in observed("ready").values() if "SET status = 'succeeded'" in query],
        message="a session that has sent the settlement, of no job yet",
    )
    assert row(job.pk).status == "running"
    door.open()
    wait_ended([job])


@pytest.mark.workers
def test_a_worker_keeps_its_statements(spawn: Spawn) -> None:
    """Seen from outside: what its sessions last ran was sent with its parameters apart."""
    spawn(env={"PGAPPNAME": "kept"})
    wait_ended([ok.enqueue()])
    wait_until(
        lambda: [query for query in observed("kept").values() if "$1" in query],
        message="a statement with numbered parameters among what its sessions last ran",
    )
