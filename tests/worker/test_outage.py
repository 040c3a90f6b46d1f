"""The server goes away, or its word does: nothing is charged for it, and nothing is done twice."""

import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from pgjobs.models import Job
from tests.conftest import OwnServer
from tests.jobsapp.jobs import effect, fail_with, hold, ok
from tests.jobsapp.misbehaving import cut_off_inside_finish, return_when_open
from tests.support.database import url_of
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until
from tests.support.workers import Workers
from tests.worker.conftest import Gate, Spawn, hurried
from tests.worker.observation import database_says, deeds, row, sessions, wait_ended, wait_for_deed

pytestmark = pytest.mark.workers

STEADY = ("--lease-seconds", "30", "--heartbeat-seconds", "0.5", "--poll-seconds", "0.2")


def noticed(workers: Workers, service: str, times: int = 1) -> Callable[[], bool]:
    return lambda: workers.output().count(f"service={service} failures=1 ") >= times


@pytest.mark.outage
def test_the_server_crashes_and_comes_back(own_server: OwnServer, gate: Callable[[str], Gate]) -> None:
    """The same processes go on, and jobs that ran through it end with the attempt they began."""
    afterwards, meanwhile = gate("afterwards"), gate("meanwhile")
    workers = own_server.spawn_workers(processes=2, concurrency=3, clock=STEADY, env=hurried())
    children = workers.child_pids
    through = [
        hold.enqueue(key=f"through {n}", gate=str(door)) for n, door in enumerate((afterwards, meanwhile))
    ]
    ending = [return_when_open.enqueue(key=f"ending {n}", gate=str(meanwhile)) for n in range(3)]
    waiting = effect.using(queue="elsewhere", priority=200).enqueue(key="waiting")
    for key in ("through 0", "through 1", "ending 0", "ending 1", "ending 2"):
        wait_for_deed(f"{key}:start")
    wait_ended([waiting])

    own_server.server.stop("immediate")
    meanwhile.open()  # these end while nobody can write it down
    wait_until(noticed(workers, "settler"), message="a settlement that met the outage")
    wait_until(noticed(workers, "heartbeat", 2), message="heartbeats that met the outage")
    own_server.server.start()
    own_server.reconnect()
    afterwards.open()
    after = [effect.enqueue(key="after") for _ in range(6)]
    ended = wait_ended([*through, *ending, *after])

    assert {(job.status, job.attempt_count, job.crash_count) for job in ended.values()} == {
        ("succeeded", 1, 0)
    }
    assert all(job.errors == [] for job in ended.values())
    assert [ended[job.pk].result for job in ending] == ["ending 0", "ending 1", "ending 2"]
    assert [len(deeds(f"through {n}:end")) for n in range(2)] == [1, 1]
    assert workers.child_pids == children

    own_server.server.stop("immediate")
    workers.signal(signal.SIGTERM)

    assert workers.wait(30) == 0, "workers end although they cannot say goodbye"


@pytest.mark.outage
def test_a_reaper_of_its_own_waits_until_a_read_only_server_takes_writes(own_server: OwnServer) -> None:
    lapsed = ok.enqueue()
    Job.objects.filter(pk=lapsed.pk).update(
        status="running", lease_owner="gone", lease_token=uuid.uuid4(), lease_expires_at=Now()
    )
    own_server.make_read_only(True)
    reaper = own_server.spawn_workers.start(
        [sys.executable, "manage.py", "runreaper", "--interval", "0.2"], env=hurried()
    )
    wait_until(lambda: "away or refuses" in reaper.output(), 30, reaper.output)

    own_server.make_read_only(False)

    wait_until(lambda: row(lapsed.pk).crash_count == 1, 30, reaper.output)


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[Proxy]:
    with Proxy(connection.get_connection_params()) as proxy:
        yield proxy


@pytest.fixture
def behind(proxy: Proxy, spawn: Spawn) -> Callable[..., Workers]:
    """Starts workers whose only way to the server is the proxy, and who send it every statement in full."""
    options = {k: v for k, v in connection.settings_dict.get("OPTIONS", {}).items() if k != "host"}
    url = url_of({**connection.settings_dict, "HOST": str(proxy.folder), "OPTIONS": options})

    def start(*options: str, settings: dict[str, Any] | None = None, **more: Any) -> Workers:
        settings = {"PREPARE": False, **(settings or {})}
        return spawn(*options, clock=STEADY, env={"DATABASE_URL": url}, settings=settings, **more)

    return start


CLAIM, SUCCEED, SETTLE = (
    "attempt_count = leased.attempt_count + 1",
    "SET status = 'succeeded'",
    "SET status = given.status",
)


def test_a_claim_whose_reply_is_lost_is_handed_back(proxy: Proxy, behind: Callable[..., Workers]) -> None:
    workers = behind(concurrency=4, settings={"NOTIFY": False})
    [child] = workers.child_pids
    proxy.lose_reply(CLAIM)

    jobs = [effect.enqueue(key=f"claimed {n}") for n in range(3)]
    ended = wait_ended(jobs)

    assert proxy.lost == 1
    assert {(job.status, job.attempt_count, job.crash_count) for job in ended.values()} == {
        ("succeeded", 1, 0)
    }
    assert [len(deeds(f"claimed {n}")) for n in range(3)] == [1, 1, 1]
    assert workers.child_pids == [child]


def test_a_settlement_whose_reply_is_lost_has_landed(proxy: Proxy, behind: Callable[..., Workers]) -> None:
    workers = behind(concurrency=1)
    proxy.lose_reply(SUCCEED)
    done = ok.enqueue(value=1)
    wait_until(lambda: proxy.lost == 1, message="the lost reply to a success")
    proxy.lose_reply(SETTLE)
    failed = fail_with.using(max_attempts=1).enqueue(message="once")
    wait_until(lambda: proxy.lost == 2, message="the lost reply to a failure")
    keyed = ok.using(idempotency_key="once").enqueue(value=3)
    proxy.lose_reply("COMMIT")
    wait_until(lambda: proxy.lost == 3, message="the lost reply to a commit")

    ended = wait_ended([done, failed, keyed, ok.enqueue()])

    assert [job.status for job in ended.values()] == ["succeeded", "dead", "succeeded", "succeeded"]
    assert {job.attempt_count for job in ended.values()} == {1}
    assert len(row(failed.pk).errors) == 1
    assert (row(done.pk).result, row(keyed.pk).result, row(keyed.pk).note) == (1, 3, "")
    assert "outcome refused" not in workers.output()


def test_a_session_that_the_server_ends_inside_finish(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    workers = spawn(clock=STEADY, concurrency=2)
    once = cut_off_inside_finish.enqueue(key="once", marker=str(gate("marker")))
    always = cut_off_inside_finish.enqueue(key="always", marker="")

    ended = wait_ended([once, always])

    done, dead = ended[once.pk], ended[always.pk]
    assert (done.status, done.attempt_count, done.errors, done.result) == ("succeeded", 1, [], "done")
    assert [deed.attempt for deed in deeds("once")] == [1]
    assert (dead.status, dead.attempt_count, len(dead.errors)) == ("dead", 1, 1), "it comes to its end"
    assert "OperationalError" in dead.last_error and deeds("always") == []
    assert "outcome refused" not in workers.output()


def lasting() -> dict[int, str]:
    """The sessions of the claim loop, the listener and the heartbeat, once there are no others.

    Three alone may be others: the heartbeat's comes with the first beat, and `hold` has ended with the commit of its
    `ctx.finish`, before its slot has given up the connection.
    """
    found = sessions("ended")
    last = [query.lstrip() for query in found.values()]
    told = [any(query.startswith(words) for query in last) for words in ("NOTIFY", "UPDATE pgjobs_worker")]
    return found if len(found) == 3 and all(told) else {}


def test_sessions_that_are_ended_one_by_one(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    door = gate("door")
    workers = spawn(clock=STEADY, concurrency=20, env={"PGAPPNAME": "ended"}, settings={"REAP_SECONDS": 60})
    [child] = workers.child_pids
    crowd = [hold.enqueue(key=f"crowd {n}", gate=str(door)) for n in range(19)]
    for n in range(19):
        wait_for_deed(f"crowd {n}:start")
    door.open()
    wait_ended(crowd)
    at_rest = wait_until(lasting, 20, lambda: f"the lasting sessions alone; there are {sessions('ended')}")
    running = return_when_open.enqueue(key="running", gate=str(gate("second")))
    wait_for_deed("running:start")

    for pid in at_rest:
        assert database_says("pg_terminate_backend(%s)", pid)
        wait_ended([effect.enqueue(key="between")])
    gate("second").open()
    ended = wait_ended([running, ok.enqueue()])

    assert {(job.status, job.attempt_count, job.errors == []) for job in ended.values()} == {
        ("succeeded", 1, True)
    }
    assert {deed.attempt for deed in deeds("between")} == {1} and len(deeds("between")) == 3
    assert workers.child_pids == [child]
    listening = lambda: [query for query in sessions("ended").values() if query.startswith("NOTIFY")]  # noqa: E731
    assert wait_until(listening, message="a listener that is back")
