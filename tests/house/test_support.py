"""The tests' own tools: what they promise to the other tests."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environ
import pytest
from django.core.management import call_command
from django.db import connection, transaction

from pgjobs.models import Job
from tests.conftest import OwnServer
from tests.jobsapp import jobs
from tests.jobsapp.models import Effect
from tests.support.database import point_at, url_of
from tests.support.waiting import wait_until
from tests.support.workers import Spawner, alive

# Two generations, the younger in a session of its own and deaf to SIGTERM, as a stubborn worker would be.
FAMILY = """
import os, signal, subprocess, sys
deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
print(f"pgjobs: worker one ready (pid {child.pid})", flush=True)
signal.pause()
"""
# Keeps a lock on the effect log in an open transaction, and sleeps in the server.
LOCK_HOLDER = """
import django; django.setup()
from django.db import connection, transaction
from tests.jobsapp.models import Effect
with transaction.atomic():
    Effect.objects.create(key="held", pid=0)
    connection.cursor().execute("SELECT pg_sleep(300)")
"""


@pytest.mark.parametrize(
    "url",
    [
        "postgres:///plain",
        "postgres:///by_socket?host=/tmp/somewhere&port=5432&user=postgres",
        "postgres://user:p%40ss%2Fword@db.example:6432/far?sslmode=require",
        "postgres://user@db.example/far",
    ],
)
def test_a_url_survives_the_way_through_settings(url: str) -> None:
    settings: dict[str, Any] = {"TEST": {"NAME": None}}
    point_at(settings, url)

    assert environ.Env.db_url_config(url_of(settings)) == environ.Env.db_url_config(url)
    assert settings["TEST"] == {"NAME": None}


def test_a_socket_folder_given_as_host_with_a_login() -> None:
    url = url_of({"NAME": "n", "USER": "u", "PASSWORD": "p&=", "HOST": "/run/postgresql", "PORT": "6000"})

    options = environ.Env.db_url_config(url)["OPTIONS"]
    assert options == {"host": "/run/postgresql", "port": 6000, "user": "u", "password": "p&="}


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(AssertionError, match=r"0.05 s in vain for the moon"):
        wait_until(lambda: False, timeout=0.05, message="the moon")


def test_a_child_process_works_on_the_same_database(spawn_workers: Spawner) -> None:
    code = "from tests.jobsapp.models import Effect; Effect.objects.create(key='k', pid=1)"

    child = spawn_workers.start([sys.executable, "-c", f"import django; django.setup(); {code}"])

    assert child.wait() == 0, child.output()
    assert Effect.objects.get().key == "k"


def test_no_process_of_a_family_survives(spawn_workers: Spawner) -> None:
    family = spawn_workers.start([sys.executable, "-c", FAMILY], ready=1)
    [child] = family.child_pids
    assert family.family() == {family.pid, child}

    spawn_workers.kill_all()

    assert not alive(child) and not alive(family.pid)


def test_orphans_are_found_too(spawn_workers: Spawner) -> None:
    family = spawn_workers.start([sys.executable, "-c", FAMILY], ready=1)
    [child] = family.child_pids
    family.signal(signal.SIGKILL)
    family.wait()

    assert family.family() == {child}


def test_a_killed_client_gives_its_locks_back(spawn_workers: Spawner) -> None:
    def asleep() -> bool:
        query = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone() is not None

    spawn_workers.start([sys.executable, "-c", LOCK_HOLDER])
    wait_until(asleep, message="the sleep with the lock held")

    spawn_workers.kill_all()

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '10s'")
        cursor.execute(f"TRUNCATE {Effect._meta.db_table}")


def test_workers_that_end_early_are_told_with_their_output(spawn_workers: Spawner) -> None:
    with pytest.raises(AssertionError, match="ended with 3 before 1 workers were ready:\nno luck"):
        spawn_workers.start([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], ready=1)


def test_the_environment_names_the_test_database(worker_env: Callable[[], dict[str, str]]) -> None:
    name = environ.Env.db_url_config(worker_env()["DATABASE_URL"])["NAME"]

    assert name == connection.settings_dict["NAME"]
    assert name.startswith("test_")


@pytest.mark.outage
def test_a_server_of_ones_own_goes_and_comes_back(own_server: OwnServer) -> None:
    Effect.objects.create(key="before", pid=os.getpid())

    own_server.server.restart("immediate")
    own_server.reconnect()

    assert Effect.objects.get().key == "before"
    call_command("migrate", check_unapplied=True, verbosity=0)


@pytest.mark.django_db
def test_the_shared_server_is_back_after_it() -> None:
    assert connection.settings_dict["NAME"].startswith("test_")
    assert Effect.objects.count() == 0


@pytest.mark.workers
def test_spawned_workers_are_known_by_name_and_process(spawn_workers: Spawner, tmp_path: Path) -> None:
    workers = spawn_workers(processes=2, concurrency=2)
    gate = tmp_path / "gate"
    held = jobs.hold.enqueue(key="held", gate=str(gate))
    wait_until(lambda: Effect.objects.filter(key="held:start").exists(), message="the start of the job")

    [effect] = Effect.objects.all()
    assert effect.job_id == held.pk
    assert dict(workers.ready)[effect.worker] == effect.pid
    assert len(workers.child_pids) == 2
    assert workers.pid not in workers.child_pids

    gate.touch()
    wait_until(lambda: Effect.objects.filter(key="held:end").exists(), message="the end of the job")
    workers.signal(signal.SIGTERM)
    assert workers.wait() == 0, workers.output()
    assert workers.family() == set()


@pytest.mark.workers
@pytest.mark.outage
def test_workers_on_a_server_of_their_own(own_server: OwnServer) -> None:
    own_server.spawn_workers(processes=1)
    jobs.finish_effect.enqueue(key="on my own")

    wait_until(lambda: Effect.objects.filter(key="on my own").exists(), message="the effect of the job")


@pytest.mark.workers
def test_every_handler_of_the_test_app_does_what_it_says(spawn_workers: Spawner) -> None:
    expected = {
        jobs.ok.enqueue(value=1).pk: "succeeded",
        jobs.echo.enqueue(a=1, b="two").pk: "succeeded",
        jobs.effect.enqueue(key="effect").pk: "succeeded",
        jobs.finish_effect.enqueue(key="finish").pk: "succeeded",
        jobs.sleep_for.enqueue(seconds=0.1).pk: "succeeded",
        jobs.fail_for_good.enqueue(reason="never").pk: "failed",
        jobs.fail_with.using(max_attempts=1).enqueue(message="no").pk: "dead",
        jobs.retry_once.enqueue(key="retry").pk: "succeeded",
        jobs.snooze_once.enqueue(key="snooze").pk: "succeeded",
        jobs.async_effect.enqueue(key="async").pk: "succeeded",
    }
    spawn_workers()

    def ended() -> dict[int, str]:
        return dict(Job.objects.exclude(status__in=["pending", "running"]).values_list("pk", "status"))

    wait_until(lambda: len(ended()) == len(expected), message=lambda: f"the end of all jobs, got {ended()}")
    assert ended() == expected
