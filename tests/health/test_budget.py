"""What a look costs on a large table: statements, and pages of memory touched. Seeded once."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from pgjobs.health import endings, reading
from pgjobs.health.errorgroup import group_detail
from pgjobs.health.errors import error_groups, worst_lately
from pgjobs.health.examination import examine
from pgjobs.health.overview import overview
from pgjobs.health.reading import Reader
from pgjobs.health.series import throughput
from pgjobs.health.why import why
from pgjobs.metrics import collect
from pgjobs.queue import hours
from pgjobs.queue.models import Job
from tests.leases.plans import Recorder
from tests.support.own_database import connection

ROWS = 200_000

# Mostly finished work: 15 % wait (a third of it for later), 2 % are dead, of 30 causes, 500 of the last hour; 150 run.
_SEED = """
INSERT INTO pgjobs_job (job_type, queue, payload, status, available_at, completed_at, last_error, priority,
                        fingerprint, error_class)
SELECT 'type.' || n %% 20, 'queue-' || n %% 7, jsonb_build_object('n', n, 'text', repeat('x', 100)), status,
       now() + make_interval(secs => CASE WHEN n %% 3 = 0 THEN n ELSE -n END),
       CASE WHEN status <> 'pending' THEN now() - make_interval(secs => n / 7.0) END, 'Error: number ' || n,
       (100 + n %% 3)::smallint, CASE WHEN status = 'dead' THEN md5((n / 50 %% 30)::text) END,
       CASE WHEN status = 'dead' THEN 'Error' END
FROM (SELECT n, CASE WHEN n %% 20 < 3 THEN 'pending' WHEN n %% 50 = 4 THEN 'dead' ELSE 'succeeded' END AS status
      FROM generate_series(1, %(rows)s) AS n) AS made"""
_RUNNING = """
INSERT INTO pgjobs_job (job_type, queue, status, lease_owner, lease_token, lease_expires_at, started_at, attempt_count)
SELECT 'type.1', 'queue-' || n %% 7, 'running', 'w-' || n %% 10, gen_random_uuid(), now() + interval '20 s', now(), 1
FROM generate_series(1, 150) AS n"""
_WORKERS = """
INSERT INTO pgjobs_worker (name, host, pid, version, code_version, queues, slots, heartbeat_at, last_poll_at,
                           stopped_at)
SELECT 'w-' || n, 'host', n, '1', 'v141', '[]', 20, now(), now(), CASE WHEN n > 10 THEN now() END
FROM generate_series(1, 300) AS n"""
_MINUTES = """
INSERT INTO pgjobs_minute (minute, queue, job_type, done, dead, wait_counts, run_counts)
SELECT date_trunc('minute', now()) - make_interval(mins => m), 'queue-' || t %% 7, 'type.' || t, 100,
       (m %% 10 = 0)::int, '{1,2,3,4,5,6}', '{5,4,3,2,1}'
FROM generate_series(0, 2879) AS m, generate_series(0, 19) AS t"""

# A third of the causes are acknowledged, and workers of a later version have started: it is looked for what came back.
_KNOWN = """
INSERT INTO pgjobs_acknowledgement (fingerprint, "by", since, versions)
SELECT md5(n::text), 'ben', now() - interval '1 day', '["v140"]' FROM generate_series(0, 9) AS n"""

_TABLES = ("pgjobs_acknowledgement", "pgjobs_job", "pgjobs_worker", "pgjobs_minute", "pgjobs_activity")


@pytest.fixture(scope="module")
def seeded(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """ROWS jobs, committed and vacuumed once for the whole module."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        # VACUUM marks a page as visible to all only when the commit of its rows is on disk.
        cursor.execute("SET synchronous_commit = on")
        for table in _TABLES:  # what tests have rolled back leaves room here and there: rows would lie about
            cursor.execute(f"TRUNCATE {table}")
        for sql in (_SEED, _RUNNING, _WORKERS, _MINUTES, _KNOWN):
            cursor.execute(sql, {"rows": ROWS})
        for table in _TABLES:
            cursor.execute(f"VACUUM ANALYZE {table}")
        yield
        for table in _TABLES:
            cursor.execute(f"TRUNCATE {table}")


@pytest.fixture
def large(seeded: None, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """That table, in a transaction of the test's own. Pages count here; milliseconds depend on who else is busy."""
    monkeypatch.setattr(reading, "TIMEOUT", "30s")


def cost(look: Callable[[], Any]) -> tuple[int, int, str]:
    """Statements that read, pages touched, and the plans for the message."""
    for each in (_middle, one_cause):
        each.cache_clear()
        each()
    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        look()
    plans = [plan for plan in recorder.plans if plan.node["Node Type"] != "Result"]
    return len(plans), sum(plan.buffers for plan in plans), "\n\n".join(map(str, plans))


def why_one() -> Any:
    """The reasons of a job in the middle of its queue."""
    return why(int(_middle()))


@cache
def one_cause() -> str:
    """The cause with the latest failure."""
    return error_groups().groups[0].fingerprint


@cache
def _middle() -> int:
    return (
        Job.objects.filter(status="pending", queue="queue-3")
        .order_by("available_at")
        .values_list("pk", flat=True)[100]
    )


@pytest.mark.parametrize(
    ("look", "statements", "buffers"),
    [
        (examine, 12, 4_000),
        (overview, 16, 6_000),
        (collect, 12, 4_000),
        (error_groups, 2, 2_800),
        (lambda: worst_lately(5, known=["f"]), 1, 1_700),
        (lambda: group_detail(one_cause()), 6, 1_400),
        (throughput, 2, 200),
        (lambda: throughput(minutes=1440), 2, 2_500),
        (why_one, 8, 600),
    ],
    ids=["examine", "overview", "metrics", "errors", "lately", "group", "series", "day", "why"],
)
def test_a_look_is_bounded(
    large: None, monkeypatch: pytest.MonkeyPatch, look: Callable[[], Any], statements: int, buffers: int
) -> None:
    monkeypatch.setattr(
        reading, "TIMEOUT", "30s"
    )  # pages count here; milliseconds depend on who else is busy
    sent, touched, plans = cost(look)
    assert sent <= statements, plans
    assert touched <= buffers, plans


def test_what_usually_dies_is_read_from_hours(large: None) -> None:
    """Alike by hours and by minutes, and far cheaper; nothing is asked where nothing dies much."""

    def told() -> tuple[list[Any], int, str]:
        recorder = Recorder()
        with Reader(connection.alias) as reader, connection.execute_wrapper(recorder):
            found = endings.read_dead_rates(reader)
        plan = recorder.plans[-1]
        return found, plan.buffers, str(plan)

    def usual(found: list[Any]) -> Any:
        return pytest.approx([each[-1] for each in found], rel=0.02)  # a minute may have begun in between

    calm, touched, plan = told()
    assert calm == [] and touched <= 200, plan
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_minute SET dead = 40 WHERE job_type IN ('type.3', 'type.7') "
            "AND minute > now() - interval '58 minutes'"
        )
    by_minutes, dear, _ = told()
    while not hours.add_up(2, using=connection.alias):
        pass
    by_hours, cheap, plan = told()
    assert [(job_type, queue) for job_type, queue, *_ in by_hours] == [
        ("type.3", "queue-3"),
        ("type.7", "queue-0"),
    ]
    assert [each[-1] for each in by_hours] == usual(by_minutes)
    assert cheap <= 500 and cheap < dear / 3, f"{dear} by minutes, {plan}"
    with connection.cursor() as cursor:  # an upgrade under way: the newest hours are there first
        cursor.execute("DELETE FROM pgjobs_hour WHERE hour < now() - interval '6 hours'")
    assert [each[-1] for each in told()[0]] == usual(by_minutes)


def test_the_seed_is_what_it_says(large: None) -> None:
    look = overview()
    assert look.missing == {} and look.verdict.unknown == {}
    assert look.totals is not None and look.totals.ready == 10_001 and look.totals.running == 150
    found = error_groups()
    assert len(found.groups) == 30 and found.complete and 100 <= found.groups[0].jobs <= 200
    assert sum(group.state == "acknowledged" for group in found.groups) == 10
