"""Sessions that are kept from one job to the next: only clean ones, only for a moment, and never by a job."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from psycopg import IsolationLevel

from pgjobs.worker import keeping
from pgjobs.worker.hygiene import clean_up
from tests.support.waiting import wait_until
from tests.worker.observation import database_says

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.unprepared]

STATE = (
    "SELECT pg_backend_pid(), current_setting('work_mem'), to_regclass('pg_temp.left_over')::text, "
    "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), "
    "(SELECT count(*) FROM pg_listening_channels()), current_setting('transaction_isolation')"
)
CHANGES = (
    "SET work_mem = '1MB'",
    "SELECT pg_advisory_lock(4712)",
    "CREATE TEMPORARY TABLE left_over ()",
    "LISTEN left_over",
)
GONE = "count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
OF_OTHERS = "FROM pg_stat_activity WHERE application_name ~ %s AND pid <> pg_backend_pid()"
Job = Callable[[], Any]


@pytest.fixture
def slot() -> Iterator[Callable[..., list[Any]]]:
    """Runs jobs one after the other in a thread, as a slot does; what each of them answers."""

    def run(*jobs: Job, ran: float = 0.0) -> list[Any]:
        answers: list[Any] = []

        def work() -> None:
            for job in jobs:
                answers.append(job())
                clean_up("job", 1, "tests.job", ran=ran)
                assert connection.connection is None, "between two jobs a thread has no session"
            answers.append("in full")
            connections.close_all()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
        assert answers.pop() == "in full"
        return answers

    keeping.begin()
    yield run
    keeping.end()


def state() -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(STATE)
        return tuple(cursor.fetchone())


def change() -> None:
    with connection.cursor() as cursor:
        for statement in CHANGES:
            cursor.execute(statement)


def meet_an_error() -> None:
    with pytest.raises(Exception, match="does not exist"):
        connection.cursor().execute("SELECT nothing")


def close() -> None:
    connection.close()


def change_the_client() -> None:
    connection.ensure_connection()
    connection.connection.isolation_level = IsolationLevel.SERIALIZABLE


def share() -> None:
    state()
    connection.inc_thread_sharing()


def test_the_session_of_a_clean_job_serves_the_next_as_if_it_were_new(slot: Callable[..., list[Any]]) -> None:
    prepared: list[Any] = []
    tell = lambda connection, **kwargs: prepared.append(connection.connection)  # noqa: E731
    connection_created.connect(tell)
    try:
        before, _, _, after = slot(state, change, lambda: None, state)
    finally:
        connection_created.disconnect(tell)

    assert before == after
    assert after[2:] == (None, 0, 0, "read committed")
    assert len(prepared) == 3 and len(set(map(id, prepared))) == 1, "Django has prepared it three times"


@pytest.mark.parametrize("spoil", [meet_an_error, change_the_client, share, close])
def test_a_session_that_is_not_clean_is_closed(slot: Callable[..., list[Any]], spoil: Job) -> None:
    before, _, after = slot(state, lambda: (state(), spoil()), state)

    assert before[0] != after[0] and before[1:] == after[1:]
    wait_until(lambda: database_says(GONE, before[0]))


def test_a_session_that_acts_for_another_role_is_closed(slot: Callable[..., list[Any]]) -> None:
    """As one whose login has a role of its own set: older servers forget that at the reset."""

    def act_for_another() -> Any:
        pid = state()[0]
        connection.cursor().execute("SET ROLE pg_monitor")
        return pid

    before, after = slot(act_for_another, state)

    assert after[0] != before


def test_a_cursor_that_is_closed_late_meets_no_transaction_of_another_job(
    slot: Callable[..., list[Any]],
) -> None:
    """A result that is read row by row, left in the middle, goes when the collector finds it."""
    left: list[Any] = []

    def leave() -> None:
        left.append(connection.chunked_cursor())
        left[0].execute("SELECT generate_series(1, 9)")
        left[0].fetchone()

    def work() -> bool:
        with transaction.atomic():
            state()
            left.pop().close()
            return bool(state())

    assert slot(leave, work)[1]


def test_execute_wrappers_go_whenever_they_came(slot: Callable[..., list[Any]]) -> None:
    """Before the first query, after it, and without any."""
    wrap = lambda: connection.execute_wrappers.append(lambda execute, *args: execute(*args))  # noqa: E731
    count = lambda: len(connection.execute_wrappers)  # noqa: E731

    found = slot(lambda: (wrap(), state()), count, lambda: (state(), wrap()), count, wrap, count)

    assert found[1::2] == [0, 0, 0]


def test_a_session_that_the_server_has_ended_is_not_handed_on(slot: Callable[..., list[Any]]) -> None:
    pids: list[int] = []

    def end_it() -> Any:
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s, 10000)", pids)
                return cursor.fetchone()[0]
        finally:
            other.close()

    _, ended, after = slot(lambda: pids.append(state()[0]), end_it, state)

    assert ended and pids != [after[0]]


def test_what_ran_long_keeps_none_and_what_is_kept_is_given_up(slot: Callable[..., list[Any]]) -> None:
    [[long, *_]] = slot(state, ran=keeping.SHORT)
    [[short, *_]] = slot(state)
    wait_until(lambda: database_says(GONE, long))
    keeping.give_up(idle=60)
    assert not database_says(GONE, short)

    keeping.give_up(idle=0)

    wait_until(lambda: database_says(GONE, short))


def test_sessions_that_nobody_can_take_do_not_pile_up(
    slot: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the password is a new one each time; here it is the name."""
    backend, numbers = type(connections["default"]), itertools.count()
    usual = backend.get_connection_params

    def params(wrapper: Any) -> dict[str, Any]:
        return {**usual(wrapper), "application_name": f"rotating {next(numbers)}"}

    monkeypatch.setattr(backend, "get_connection_params", params)

    found = slot(state, state, state)

    assert len({pid for pid, *_ in found}) == 3
    wait_until(lambda: database_says(f"count(*) = 1 {OF_OTHERS}", "^rotating"))


def test_a_pooler_that_is_put_between_meanwhile_is_noticed(
    slot: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, again = slot(state, state)
    keeping.give_up(idle=0)
    monkeypatch.setattr(keeping, "_pooled", set())
    monkeypatch.setattr(keeping, "is_direct", lambda session: False)

    first, second = slot(state, state)

    assert before == again and first[0] != second[0]
