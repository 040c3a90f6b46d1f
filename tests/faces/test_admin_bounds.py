"""What a page may cost on a large table: measured by the plans of the statements that it really sends."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pgjobs.admin import filters
from tests.faces.conftest import ClientOf
from tests.faces.rows import make_job, make_worker, seed, unseed

ROWS = 200_000
JOBS = reverse("admin:pgjobs_job_changelist")
DEAD = reverse("admin:pgjobs_deadjob_changelist")
RUNNING = reverse("admin:pgjobs_runningjob_changelist")
BACKLOG = reverse("admin:pgjobs_backlog_changelist")
WORKERS = reverse("admin:pgjobs_worker_changelist")
LARGE_COLUMNS = ("payload", "result", "errors", "last_error")


@dataclass(frozen=True)
class Read:
    """One node of a plan that reads the job table."""

    node: str
    rows: int
    above: tuple[str, ...]


@pytest.fixture(scope="module")
def seeded(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """ROWS jobs, committed once for the whole module."""
    with django_db_blocker.unblock():
        seed(ROWS)
        yield
        unseed()


@pytest.fixture
def table(seeded: None, client_of: ClientOf) -> Client:
    """A superuser before that table."""
    return client_of("superuser")


def statements(client: Client, address: str) -> list[str]:
    """The statements on jobs that a page sends."""
    with CaptureQueriesContext(connection) as captured:
        response = client.get(address)
    assert response.status_code == 200, address
    sent = [query["sql"] for query in captured.captured_queries]
    return [sql for sql in sent if "pgjobs_job" in sql and sql.lstrip().startswith(("SELECT", "WITH"))]


def reads(sql: str) -> list[Read]:
    """Runs a statement and tells what it read from the job table."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        (answer,) = cursor.fetchone()
    plan = json.loads(answer) if isinstance(answer, str) else answer
    return list(walk(plan[0]["Plan"], ()))


def walk(node: dict[str, Any], above: tuple[str, ...]) -> Iterator[Read]:
    if node.get("Relation Name") == "pgjobs_job" or str(node.get("Index Name")).startswith("pgjobs_job"):
        each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        yield Read(node["Node Type"], round(each * node["Actual Loops"]), above)
    for child in node.get("Plans", ()):
        yield from walk(child, (*above, node["Node Type"]))


@pytest.mark.parametrize(
    ("address", "most"),
    [
        (JOBS, 10_101),
        (f"{JOBS}?p=100", 10_101),
        (f"{JOBS}?o=2", 10_101),
        (f"{JOBS}?all=", 10_101),
        (f"{JOBS}?status=pending", 10_101),
        (f"{JOBS}?status=dead", 10_101),
        (f"{JOBS}?status=dead&job_type=nothing", 10_101),
        (f"{JOBS}?status=succeeded", filters.WINDOW),
        (f"{JOBS}?queue=queue-3", filters.WINDOW),
        (f"{JOBS}?queue=nothing", filters.WINDOW),
        (f"{JOBS}?job_type=gone.type", filters.WINDOW),
        (f"{JOBS}?job_type=nothing&queue=queue-1&status=succeeded", filters.WINDOW),
        (f"{JOBS}?q=nothing", filters.WINDOW),
        (f"{JOBS}?q=jobsapp.ok", filters.WINDOW),
        (f"{JOBS}?q=4711", filters.WINDOW),
        (DEAD, 10_101),
        (f"{DEAD}?status=failed&queue=nothing", 10_101),
        (RUNNING, 10_101),
        (BACKLOG, 10_101),
        (WORKERS, 5),
    ],
)
def test_what_a_page_reads_does_not_grow_with_the_table(table: Client, address: str, most: int) -> None:
    make_worker()
    for _ in range(5):
        make_job("running")
    sent = statements(table, address)
    assert 1 <= len(sent) <= 8
    for sql in sent:
        assert not sql.startswith("SELECT COUNT(") or " LIMIT " in sql, sql
        for read in reads(sql):
            assert read.rows <= most, (read, sql)
            bare = read.node == "Seq Scan" and not set(read.above) & {"Limit"}
            assert not bare, (read, sql)


def test_the_count_is_bounded_and_says_so(table: Client) -> None:
    assert b"10,000+ jobs" in table.get(JOBS).content


@pytest.mark.parametrize("address", [JOBS, DEAD, RUNNING])
def test_lists_leave_large_columns_in_the_table(table: Client, address: str) -> None:
    (rows,) = [sql for sql in statements(table, address) if '"error_start"' in sql]
    selected = rows.split(" FROM ")[0].split(", ")
    assert any(column.endswith('"pgjobs_job"."job_type"') for column in selected)
    assert not [name for name in LARGE_COLUMNS if f'"pgjobs_job"."{name}"' in selected]


def test_a_windowed_list_says_what_it_looked_through(table: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_job("succeeded", id=-1, queue="long-ago")
    page = table.get(f"{JOBS}?queue=long-ago").content.decode()
    assert f"Looked through the newest {filters.WINDOW:,} jobs only" in page
    assert f"/job/{first.pk}/change/" not in page
    monkeypatch.setattr(filters, "WINDOW", 2**40)
    page = table.get(f"{JOBS}?queue=long-ago").content.decode()
    assert "Looked through" not in page
    assert f"/job/{first.pk}/change/" in page


def test_old_dead_and_waiting_jobs_are_found_however_old_they_are(table: Client) -> None:
    """An index serves these filters, so no window hides them."""
    statuses = ("dead", "failed", "cancelled", "pending", "running")
    old = {status: make_job(status, id=-n, queue="long-ago") for n, status in enumerate(statuses, 1)}
    for status, job in old.items():
        page = table.get(f"{JOBS}?status={status}&queue=long-ago").content.decode()
        assert f"/job/{job.pk}/change/" in page, status
    dead = table.get(f"{DEAD}?queue=long-ago").content.decode()
    assert f"/job/{old['dead'].pk}/change/" in dead and f"/job/{old['failed'].pk}/change/" in dead
