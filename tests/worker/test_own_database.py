"""The queue in a database of its own: what stays one commit, what does not, and that it is said."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connections, router, transaction

from pgjobs import databases
from pgjobs.models import Execution, Job
from pgjobs.queue.finish import finishing
from pgjobs.routers import PgJobsRouter
from tests.jobsapp.jobs import finish_effect, ok
from tests.jobsapp.models import Effect
from tests.jobsapp.workflows import sleeper
from tests.leases.factories import running
from tests.support import own_database
from tests.support.database import COPIED_KEYS, url_of
from tests.support.environment import ROOT
from tests.support.measuring import new_database
from tests.worker.conftest import Spawn
from tests.worker.observation import wait_ended

apart = pytest.mark.skipif(
    not own_database.ON, reason="runs inside test_the_core_of_the_suite, where the queue has its own database"
)

CORE = [
    "tests/leases/test_claim.py",
    "tests/leases/test_fence.py",
    "tests/leases/test_reap.py",
    "tests/leases/test_renew_release.py",
    "tests/queue/test_enqueue.py",
    "tests/queue/test_finish.py",
    "tests/queue/test_settle.py",
    "tests/workflows/test_replay.py",
    "tests/workflows/test_start.py",
    "tests/worker/test_crash.py::test_the_story_of_the_crash",
    "tests/worker/test_own_database.py",
]


@pytest.mark.campaign
@pytest.mark.timeout(400)
@pytest.mark.skipif(own_database.ON, reason="this is that run")
def test_the_core_of_the_suite(postgres_url: str, tmp_path: Path) -> None:
    with new_database(postgres_url, "own") as url:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-n0",  # it is one of several already
                f"--basetemp={tmp_path / 'own'}",
                *CORE,
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "DATABASE_URL": url,
                "PGJOBS_TEST_OWN_DATABASE": "1",
                "PGJOBS_TEST_POSTGRES": "",
            },
            capture_output=True,
            text=True,
            timeout=380,
        )

    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout and " failed" not in done.stdout


def tables(alias: str) -> set[str]:
    with connections[alias].cursor() as cursor:
        return set(connections[alias].introspection.table_names(cursor))


@apart
@pytest.mark.django_db
def test_each_table_is_in_one_database_only() -> None:
    of_the_queue, rest = tables("queue"), tables("default")

    assert {"pgjobs_job", "pgjobs_execution", "jobsapp_effect"} <= of_the_queue
    assert of_the_queue & rest == {"django_migrations"}
    assert {"auth_user", "django_content_type"} <= rest
    codenames = {permission.codename for permission in _permissions()}
    assert {"view_job", "retry_job", "decide_wait"} <= codenames, "permissions are where the users are"


def _permissions() -> Any:
    from django.contrib.auth.models import Permission

    return Permission.objects.using("default").filter(content_type__app_label="pgjobs")


@apart
@pytest.mark.django_db
def test_a_subject_in_another_database() -> None:
    ann = User.objects.create(username="ann")
    started = Execution.objects.get(pk=sleeper.start(seconds=1, actor=ann, subject=ann).pk)

    assert (started._state.db, ann._state.db) == ("queue", "default")
    assert started.subject == ann
    assert [e.subject for e in Execution.objects.prefetch_related("subject")] == [ann]
    started.subject = ContentType.objects.get_for_model(User)
    started.save()
    assert Execution.objects.get().subject == ContentType.objects.get_for_model(User)
    kind = ContentType.objects.create(app_label="gone", model="gone")
    Execution.objects.update(subject_type_id=kind.pk, subject_id="1")
    kind.delete()
    ContentType.objects.clear_cache()
    assert Execution.objects.get().subject is None, "nothing hinders the end of a content type"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What was said of transactions on two databases, as if nothing had been before."""
    monkeypatch.setattr(databases, "_told", set())
    caplog.set_level(logging.WARNING, "pgjobs.databases")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "pgjobs.databases"]


@apart
@pytest.mark.django_db(transaction=True)
def test_enqueue_is_no_part_of_another_databases_transaction(said: Callable[[], list[str]]) -> None:
    ok.enqueue(1)
    with transaction.atomic(using="queue"), transaction.atomic(using="default"):
        ok.enqueue(2)
    assert said() == []

    for _ in range(2):
        with transaction.atomic():
            ok.enqueue(3)
            transaction.set_rollback(True)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        sleeper.start(seconds=1)
        raise ZeroDivisionError

    assert Job.objects.count() == 4 and Execution.objects.count() == 1, "they were committed at once"
    first, second = said()
    assert "enqueue() of jobsapp.ok commits on 'queue' at once" in first and "'default'" in first
    assert "start() of jobsapp.sleeper" in second


@apart
@pytest.mark.django_db(transaction=True)
def test_finish_covers_the_queues_database_only(said: Callable[[], list[str]]) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        finishing(running(), None, using="queue"),
        databases.covering("queue", "ctx.finish()", "jobsapp.ok"),
    ):
        Effect.objects.create(key="beside the queue", pid=0)
        assert said() == []
        User.objects.create(username="ann")
        User.objects.update(first_name="Ann")
        raise ZeroDivisionError

    assert not Effect.objects.exists() and Job.objects.get().status == "running"
    assert User.objects.get().first_name == "Ann"
    [told] = said()
    assert (
        "jobsapp.ok writes to database 'default' inside ctx.finish(), which commits on 'queue' alone" in told
    )
    User.objects.update(first_name="")
    assert len(said()) == 1, "only inside the block"


@apart
@pytest.mark.workers
def test_workers_find_it(spawn: Spawn) -> None:
    workers = spawn(concurrency=2)
    jobs = [finish_effect.enqueue(key=f"{n}", result=n) for n in range(20)]

    ended = wait_ended(jobs)

    assert {job.status for job in ended.values()} == {"succeeded"}
    assert Effect.objects.count() == 20
    assert "polling does the work" not in workers.output()


# From here on without the switch: the router, and a database that nothing was prepared in.


@pytest.mark.parametrize(
    ("own", "asked", "label", "answer"),
    [
        ("queue", "queue", "pgjobs", True),
        ("queue", "default", "pgjobs", False),
        ("queue", "queue", "auth", False),
        ("queue", "default", "auth", None),
        ("default", "default", "pgjobs", True),
        ("default", "default", "auth", None),
        ("default", "other", "pgjobs", False),
        ("default", "other", "auth", None),
    ],
)
def test_what_migrates_where(settings: Any, own: str, asked: str, label: str, answer: bool | None) -> None:
    settings.PGJOBS = {"DATABASE": own}

    assert PgJobsRouter().allow_migrate(asked, label) is answer


def test_what_is_read_where(settings: Any) -> None:
    settings.PGJOBS = {"DATABASE": "queue"}
    settings.DATABASE_ROUTERS = ["pgjobs.routers.PgJobsRouter"]

    assert [router.db_for_write(model) for model in (Job, Execution, User)] == ["queue", "queue", "default"]
    assert router.db_for_read(Job) == "queue"
    assert router.allow_relation(Execution(), ContentType())
    there, here = User(), User()
    there._state.db, here._state.db = "queue", "default"
    assert not router.allow_relation(there, here), "of others it says nothing"


@pytest.fixture
def older(django_db_setup: None, django_db_blocker: Any, postgres_url: str) -> Iterator[Any]:
    """An empty database of its own, under `default`."""
    connection = connections["default"]
    before = {key: connection.settings_dict[key] for key in COPIED_KEYS}
    with new_database(url_of({**before, "NAME": "postgres"}), "older") as url, django_db_blocker.unblock():
        from tests.support.database import point_at

        connection.close()
        point_at(connection.settings_dict, url)
        try:
            yield connection
        finally:
            connection.close()
            connection.settings_dict.update(before)


@pytest.mark.skipif(own_database.ON, reason="needs the tables under `default`")
def test_a_constraint_that_an_older_migration_made_is_taken_away(older: Any) -> None:
    from django.core.management import call_command

    migrate = lambda name: call_command("migrate", "pgjobs", name, verbosity=0)  # noqa: E731
    migrate("0004")
    with older.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE pgjobs_execution ADD CONSTRAINT pgjobs_execution_subject_type_id_0a1b2c3d_fk "
            "FOREIGN KEY (subject_type_id) REFERENCES django_content_type (id) DEFERRABLE INITIALLY DEFERRED"
        )
    migrate("0005")

    with older.cursor() as cursor:
        constraints = older.introspection.get_constraints(cursor, "pgjobs_execution")
    foreign = {tuple(one["columns"]) for one in constraints.values() if one["foreign_key"]}
    assert foreign == {("parent_id",), ("continued_from_id",)}
