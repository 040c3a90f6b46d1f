"""Behind PgBouncer in transaction mode, with three server connections for workers and test together.

The stories that are imported here are the ones that run without a pooler too, unchanged.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from pgjobs.backoff import Backoff
from pgjobs.models import Job
from pgjobs.worker import listener
from pgjobs.worker.listener import Listener
from tests.jobsapp.jobs import effect, hold
from tests.support.database import COPIED_KEYS, url_of
from tests.support.environment import child_environment
from tests.support.pgbouncer import POOL_SIZE, PORT, PgBouncer, program
from tests.support.waiting import wait_until
from tests.worker import test_kills as kills
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import database_says, deeds, sessions, wait_ended, wait_for_deed
from tests.worker.test_crash import (  # noqa: F401 - run here too
    test_the_story_of_the_crash,
)
from tests.worker.test_pickup import (  # noqa: F401
    NO_POLL,
    SLOW_POLL,
    SOON,
    test_polling_alone_brings_jobs,
)
from tests.worker.test_shutdown import test_the_grace  # noqa: F401
from tests.workflows.test_atomic import test_lands_once_under_kills_inside_and_outside_the_block  # noqa: F401
from tests.workflows.test_engine_waits import (  # noqa: F401
    test_a_sleeper_that_is_due_while_nobody_runs,
    test_two_waits_of_one_name_with_real_workers,
)
from tests.workflows.test_gather import test_failing_dead_and_killing_jobs  # noqa: F401

pytestmark = [
    pytest.mark.unprepared,
    pytest.mark.workers,
    pytest.mark.skipif(
        program() is None, reason="PgBouncer is not installed (Debian: apt install pgbouncer)"
    ),
]

DEAF = "listener hears nothing of its own probe"
STEADY = ("--lease-seconds", "30", "--heartbeat-seconds", "0.5", "--poll-seconds", "0.2")


@pytest.fixture
def direct_url(transactional_db: None) -> str:
    """The server's own address. Asked for before the connection is turned to the pooler."""
    return url_of(connection.settings_dict)


@pytest.fixture
def bouncer(direct_url: str) -> Iterator[PgBouncer]:
    """Turns this process's connection to the pooler, and the workers' with it (`worker_env`)."""
    before = {key: connection.settings_dict[key] for key in COPIED_KEYS}
    with PgBouncer(connection.get_connection_params()) as bouncer:
        connection.close()
        options = {key: value for key, value in before["OPTIONS"].items() if key not in ("host", "port")}
        connection.settings_dict.update(HOST=str(bouncer.folder), PORT=str(PORT), OPTIONS=options)
        try:
            yield bouncer
        finally:
            connection.close()
            connection.settings_dict.update(before)


@pytest.fixture
def worker_env(bouncer: PgBouncer) -> Callable[[], dict[str, str]]:
    """The one thing that Django asks for behind such a pooler is DISABLE_SERVER_SIDE_CURSORS."""
    settings = connection.settings_dict
    options = {**settings["OPTIONS"], "DISABLE_SERVER_SIDE_CURSORS": True}
    return lambda: child_environment(DATABASE_URL=url_of({**settings, "OPTIONS": options}))


@pytest.mark.campaign
def test_five_hundred_jobs_under_kills(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "JOBS", 500)
    monkeypatch.setattr(kills, "KILLS", 8)

    kills.test_two_thousand_jobs_under_twenty_kills(spawn)

    assert database_says("count(*) FROM pg_stat_activity WHERE datname = current_database()") <= POOL_SIZE


def test_listening_through_it_is_left_to_polling(spawn: Spawn) -> None:
    workers = spawn(concurrency=2)
    wait_until(lambda: DEAF in workers.output(), 30, "the listener's word")

    wait_ended([effect.enqueue(key="polled")])

    assert workers.output().count(DEAF) == 1
    assert "PGJOBS['LISTEN_DATABASE']" in workers.output()
    listening = [query for query in sessions("").values() if query == "LISTEN pgjobs"]
    assert listening == [], "no server connection of the pool is left with everybody's notifications"


def test_the_listener_says_so_once_and_goes_on_trying(
    bouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "_LISTEN_AGAIN", Backoff(base=0.05, cap=0.05))
    monkeypatch.setattr(listener, "_PROBE_WAIT", 0.3)
    service = Listener("default", lambda: None)
    service.start()
    try:
        wait_until(lambda: service._unheard >= 3, 20, "three probes that nobody heard")
    finally:
        service.stop()
        assert service.join(10)

    assert [DEAF in record.getMessage() for record in caplog.records] == [True]
    assert not service.hearing and service.failures == 0


def test_an_address_of_its_own_for_listening(spawn: Spawn, direct_url: str) -> None:
    workers = spawn(
        clock=SLOW_POLL,
        concurrency=2,
        settings={**NO_POLL, "LISTEN_DATABASE": "direct"},
        env={"DIRECT_DATABASE_URL": direct_url, "PGAPPNAME": "listening"},
    )
    wait_until(lambda: "LISTEN pgjobs" in sessions("listening").values(), 30, "the listener's session")

    effect.enqueue(key="first")
    wait_for_deed("first", SOON)
    effect.enqueue(key="second")
    wait_for_deed("second", SOON)

    assert DEAF not in workers.output()


def test_an_address_that_leads_to_another_database(spawn: Spawn, direct_url: str) -> None:
    elsewhere = direct_url.replace(f"/{connection.settings_dict['NAME']}", "/postgres", 1)
    assert elsewhere != direct_url

    workers = spawn(settings={"LISTEN_DATABASE": "direct"}, env={"DIRECT_DATABASE_URL": elsewhere})

    wait_until(lambda: DEAF in workers.output(), 30, "the listener's word")
    assert "PGJOBS['LISTEN_DATABASE'] is 'direct'" in workers.output()
    wait_ended([effect.enqueue(key="polled")])


@pytest.mark.campaign
def test_it_is_restarted_under_the_workers(
    bouncer: PgBouncer, spawn: Spawn, gate: Callable[[str], Gate], direct_url: str
) -> None:
    door = gate("door")
    direct: dict[str, Any] = {"DIRECT_DATABASE_URL": direct_url}
    workers = spawn(
        processes=2, concurrency=3, clock=STEADY, settings={"LISTEN_DATABASE": "direct"}, env=direct
    )
    children = workers.child_pids
    through = [hold.enqueue(key=f"through {n}", gate=str(door)) for n in range(2)]
    wait_for_deed("through 0:start"), wait_for_deed("through 1:start")
    between: list[Job] = []

    def work() -> None:
        connection.close()
        between.append(effect.enqueue(key="between"))
        wait_ended(between)

    bouncer.command("RECONNECT")
    work()
    name = connection.settings_dict["NAME"]
    bouncer.command(f"KILL {name}")  # drops clients and servers, and lets nobody in
    wait_until(lambda: "failures=1 " in workers.output(), 30, "workers that noticed")
    bouncer.command(f"RESUME {name}")
    work()
    noticed = workers.output().count("failures=1 ")  # before the stop: workers may notice while it lasts
    bouncer.stop()
    wait_until(lambda: workers.output().count("failures=1 ") > noticed, 30, "workers that noticed again")
    bouncer.start()
    work()
    door.open()
    ended = wait_ended([*through, *between])

    assert {(job.status, job.attempt_count, job.crash_count) for job in ended.values()} == {
        ("succeeded", 1, 0)
    }
    assert [len(deeds(f"through {n}:end")) for n in range(2)] == [1, 1]
    assert workers.child_pids == children, json.dumps(workers.ready)
