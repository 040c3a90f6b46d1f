"""What the figures of 200 types cost, by range: statements, and pages of memory touched. Seeded once."""

from collections.abc import Iterator
from typing import Any

import pytest

from pgjobs.health import reading
from pgjobs.health.tasktypes import task_detail, task_table
from tests.leases.plans import Recorder
from tests.support.own_database import connection

TYPES = 200
_HOURS = """
INSERT INTO pgjobs_hour (hour, queue, job_type, done, retried, dead, wait_seconds, run_seconds, wait_counts, run_counts)
SELECT hour, 'queue-' || n %% 7, 'application.some_job_type_' || n, 1000, 50, (n = 7)::int, 12.5, 900.5 + n,
       '{10,20,30,40,50,60}', '{5,6,7,8,9,100,200,300,400,50,20,10}'
FROM generate_series(date_bin('1 hour', now(), 'epoch') - interval '336 hours',
                     date_bin('1 hour', now(), 'epoch') - interval '1 hour', '1 hour') AS hour,
     generate_series(1, %(types)s) AS n ORDER BY 1, 2, 3"""
_MINUTES = """
INSERT INTO pgjobs_minute (minute, queue, job_type, done, run_seconds, wait_counts, run_counts)
SELECT date_trunc('minute', now()) - make_interval(mins => m), 'queue-' || t %% 7, 'application.some_job_type_' || t,
       10, 9.0, '{1,2,3,4,5,6}', '{5,4,3,2,1,7,8,9,10}'
FROM generate_series(300, 0, -1) AS m, generate_series(1, %(types)s) AS t
ORDER BY 1, 2, 3"""  # as workers write them: minute by minute, each in the order of its key


def run(sql: str, **params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params or None)


@pytest.fixture(scope="module")
def seeded(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """200 types in each of 336 hours and 300 minutes."""
    with django_db_blocker.unblock():
        run("SET synchronous_commit = on")
        for sql in (_HOURS, _MINUTES):
            run(sql, types=TYPES)
        run("VACUUM ANALYZE pgjobs_hour")
        run("VACUUM ANALYZE pgjobs_minute")
        yield
        run("TRUNCATE pgjobs_hour, pgjobs_minute")


@pytest.fixture
def large(seeded: None, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages count here; milliseconds depend on who else is busy."""
    monkeypatch.setattr(reading, "TIMEOUT", "30s")
    # In life there are fifty times as many minutes. Of so few the planner would rather read all.
    run("SET LOCAL random_page_cost = 1.1")


@pytest.mark.parametrize(("name", "most"), [("1h", 5_000), ("24h", 3_000), ("7d", 3_000)])
def test_a_range_costs_no_more(large: None, name: str, most: int) -> None:
    task_table(name)  # the catalogue is warm
    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        found = task_table(name)
        one = task_detail("application.some_job_type_7", name)
    plans = [plan for plan in recorder.plans if plan.node["Node Type"] != "Result" or plan.buffers]
    assert len(plans) <= 4
    half = len(plans) // 2
    for part in (plans[:half], plans[half:]):
        assert sum(plan.buffers for plan in part) <= most, "\n\n".join(map(str, part))

    assert len(found.rows) == TYPES and found.complete
    assert found.span.is_whole and found.span.compares
    assert one.row.now.runs == sum(sums.runs for _, sums in one.queues)
    assert sum(point.done for point in one.points) == one.row.now.done
    assert 24 <= len(one.points) <= 100
