"""What a page may cost on a large table: statements and buffers, of what it really sends."""

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pgjobs.admin import window
from pgjobs.health.errors import GROUPS
from pgjobs.models import Acknowledgement, Execution, Job, QueuePause
from tests.faces.conftest import ClientOf
from tests.faces.pages import person
from tests.faces.rows import make_job, make_worker, seed, unseed
from tests.support.own_database import connection
from tests.workflows.rows import approval, step

ROWS = 200_000
WINDOW = 100_000
"""Smaller than the table, so that a page that looks beyond it is found out."""
# More of one cause than its page looks at, as they come: each page of the table has a few.
_OF_ONE_CAUSE = """
INSERT INTO pgjobs_job (job_type, queue, payload, status, completed_at, completed_by, fingerprint, errors)
SELECT 'jobsapp.echo', 'queue-3', jsonb_build_object('tenant', 'acme', 'text', repeat('x', 200)), 'dead',
       now() - make_interval(secs => n), 'host.1.abc', %s,
       jsonb_build_array(jsonb_build_object('traceback', repeat('y', 900)))
FROM generate_series(1, 1200) AS n"""
LARGE_COLUMNS = ("payload", "result", "errors", "last_error")
_NO_WORK = (
    "SAVEPOINT",
    "RELEASE",
    "ROLLBACK",
    "BEGIN",
    "COMMIT",
    "SELECT current_setting('statement_timeout'",
)


def changelist(name: str) -> str:
    return reverse(f"admin:pgjobs_{name}_changelist")


JOBS, DEAD, RUNNING = changelist("job"), changelist("deadjob"), changelist("runningjob")

# Address, statements (session and user among them), buffers.
BUDGETS = [
    (changelist("overview"), 22, 6_000),
    (changelist("errorgroup"), 10, 3_000),
    (RUNNING, 6, 600),
    (JOBS, 8, 1_500),
    (f"{JOBS}?p=100", 8, 1_500),
    (f"{JOBS}?o=2", 8, 1_500),
    (f"{JOBS}?all=", 8, 1_500),
    (f"{JOBS}?status=ready", 8, 1_500),
    (f"{JOBS}?status=pending", 8, 1_500),
    (f"{JOBS}?status=dead", 8, 1_500),
    (f"{JOBS}?status=dead&p=100", 8, 1_500),
    (f"{JOBS}?status=dead&job_type=nothing", 8, 1_500),
    (f"{JOBS}?status=failed&job_type=jobsapp.ok&queue=queue-3", 8, 1_500),
    (f"{JOBS}?status=dead&discarded=only", 8, 1_500),
    (f"{JOBS}?status=dead&discarded=too", 8, 26_000),
    (f"{JOBS}?status=succeeded", 8, 26_000),
    (f"{JOBS}?queue=queue-3", 8, 26_000),
    (f"{JOBS}?queue=nothing", 8, 26_000),
    (f"{JOBS}?job_type=nothing&queue=queue-1&status=succeeded", 8, 26_000),
    (f"{JOBS}?q=nothing", 10, 26_000),
    (f"{JOBS}?q=4711", 11, 26_000),
    (f"{JOBS}?q=payload.n:17", 8, 26_000),
    (f"{JOBS}?q=state:dead+err:Nothing", 8, 26_000),
    (f"{JOBS}?q=fp:0000", 8, 1_500),
    (f"{JOBS}?before_id=150000", 8, 26_000),
    (DEAD, 7, 1_500),
    (f"{DEAD}?p=100", 7, 1_500),
    (f"{DEAD}?status=failed&queue=nothing", 8, 1_500),
    (changelist("queue"), 21, 6_000),
    (reverse("admin:pgjobs_queue_change", args=["queue-3"]), 24, 6_000),
    (changelist("worker"), 7, 500),
    (changelist("execution"), 8, 1_500),
    (changelist("wait"), 7, 500),
    (changelist("operatoraction"), 7, 300),
    (changelist("system"), 20, 2_000),
    (changelist("tasktype"), 8, 600),
    (changelist("activity"), 7, 150),
]


@pytest.fixture(scope="module")
def seeded(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """ROWS jobs, committed once for the whole module."""
    with django_db_blocker.unblock():
        seed(ROWS)
        yield
        unseed()


@pytest.fixture
def table(seeded: None, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A superuser before that table, with a little of everything else."""
    monkeypatch.setattr(window, "WINDOW", WINDOW)
    make_worker()
    for _ in range(5):
        make_job("running")
    asked = approval()
    step(asked.execution, 0)
    return client_of("superuser")


def statements(client: Client, address: str) -> list[str]:
    """What a page asks of the database, apart from the bounds of transactions and of time."""
    with CaptureQueriesContext(connection) as captured:
        response = client.get(address)
    assert response.status_code == 200, address
    assert b"Not available" not in response.content, address
    sent = [query["sql"].lstrip() for query in captured.captured_queries]
    return [sql for sql in sent if not sql.startswith(_NO_WORK)]


def plan(sql: str) -> dict[str, Any]:
    """Runs a statement and tells how."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")
        (answer,) = cursor.fetchone()
    found: dict[str, Any] = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
    return found


def buffers(sql: str) -> int:
    """Pages of shared memory that a statement touches."""
    if not sql.startswith(("SELECT", "WITH")):
        return 0
    found = plan(sql)
    return int(found["Shared Hit Blocks"] + found["Shared Read Blocks"])


@pytest.mark.parametrize(("address", "most_statements", "most_buffers"), BUDGETS)
def test_what_a_page_costs_is_bounded(
    table: Client, address: str, most_statements: int, most_buffers: int
) -> None:
    sent = statements(table, address)
    assert len(sent) <= most_statements, "\n".join(sql[:150] for sql in sent)
    used = {sql: buffers(sql) for sql in sent}
    assert sum(used.values()) <= most_buffers, sorted(used.items(), key=lambda item: -item[1])[:3]


@pytest.mark.parametrize(
    ("name", "most_statements", "most_buffers"),
    [("job", 14, 400), ("options", 12, 400), ("execution", 15, 800), ("errorgroup", 12, 1_500)],
)
def test_what_a_detail_costs_is_bounded(
    table: Client, name: str, most_statements: int, most_buffers: int
) -> None:
    job = Job.objects.filter(status="dead").earliest("pk")
    if name == "errorgroup":
        with connection.cursor() as cursor:
            cursor.execute(_OF_ONE_CAUSE, ["f" * 40])
        Acknowledgement.objects.create(fingerprint="f" * 40, by="ben", versions=["v140"])
    address = {
        "job": reverse("admin:pgjobs_job_change", args=[job.pk]),
        "options": reverse("admin:pgjobs_job_options", args=[job.pk]),
        "execution": reverse("admin:pgjobs_execution_change", args=[Execution.objects.get().pk]),
        "errorgroup": reverse("admin:pgjobs_errorgroup_change", args=["f" * 40]),
    }[name]
    sent = statements(table, address)
    assert len(sent) <= most_statements, "\n".join(sql[:150] for sql in sent)
    used = {sql: buffers(sql) for sql in sent}
    assert sum(used.values()) <= most_buffers, sorted(used.items(), key=lambda item: -item[1])[:3]


def test_the_overview_stays_within_its_statements_in_trouble_and_for_people_with_few_rights(
    table: Client,
) -> None:
    """Paused, with old work of unknown types, more causes than are told apart, and rights that cost two reads."""
    for number in range(GROUPS + 1):
        make_job("dead", fingerprint=f"{number:040x}")
    QueuePause.objects.create(kind="queue", name="queue-2", by="ann", reason="why")
    pager = person("pager", "pause_queue", "view_operatoraction", "view_wait", "view_worker")
    sent = statements(pager, changelist("overview"))
    assert any(
        "unnest" in sql and "named(queue)" in sql for sql in sent
    )  # each of the reads that are not always made
    assert any("max(completed_at)" in sql for sql in sent)
    assert sum("auth_permission" in sql for sql in sent) == 2
    assert len(sent) <= 22, "\n".join(sql[:150] for sql in sent)


def test_a_page_that_was_just_made_costs_next_to_nothing(table: Client) -> None:
    statements(table, changelist("overview"))
    assert len(statements(table, changelist("overview"))) <= 3


def test_the_count_is_bounded_and_says_so(table: Client) -> None:
    page = table.get(JOBS).content
    assert b"10,000+ jobs" in page
    assert b"10000" not in page and b"results (" not in page


@pytest.mark.parametrize("address", [JOBS, DEAD])
def test_lists_leave_large_columns_in_the_table(table: Client, address: str) -> None:
    (rows,) = [sql for sql in statements(table, address) if '"error_start"' in sql]
    selected = rows.split(" FROM ")[0].split(", ")
    assert any(column.endswith('"pgjobs_job"."job_type"') for column in selected)
    assert not [name for name in LARGE_COLUMNS if f'"pgjobs_job"."{name}"' in selected]


def test_a_windowed_list_says_what_it_looked_through(table: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_job("succeeded", id=-1, queue="long-ago")
    page = table.get(f"{JOBS}?queue=long-ago").content.decode()
    assert f"Looked through the newest {WINDOW:,} jobs only" in page
    assert "back to" in page
    assert f"/job/{first.pk}/change/" not in page
    monkeypatch.setattr(window, "WINDOW", 2**40)
    page = table.get(f"{JOBS}?queue=long-ago").content.decode()
    assert "Looked through" not in page
    assert f"/job/{first.pk}/change/" in page


def test_the_window_moves_back_until_everything_was_looked_through(table: Client) -> None:
    first = Job.objects.filter(status="succeeded").earliest("pk")
    Job.objects.filter(pk=first.pk).update(queue="long-ago")
    address = f"{JOBS}?queue=long-ago"
    for _ in range(5):
        page = table.get(address).content.decode()
        if f"/job/{first.pk}/change/" in page:
            break
        query = re.search(r'<a href="(\?[^"]*before_id=\d+)">Search the', page)
        assert query, address
        address = f"{JOBS}{unescape(query[1])}"
    assert f"/job/{first.pk}/change/" in page


def test_old_dead_and_waiting_jobs_are_found_however_old_they_are(table: Client) -> None:
    """An index serves these filters, so no window hides them."""
    statuses = ("dead", "failed", "cancelled", "pending", "running")
    old = {status: make_job(status, id=-n, queue="long-ago") for n, status in enumerate(statuses, 1)}
    for status, job in old.items():
        page = table.get(f"{JOBS}?status={status}&queue=long-ago").content.decode()
        assert f"/job/{job.pk}/change/" in page, status
    for status in ("dead", "failed"):
        page = table.get(f"{DEAD}?status={status}&queue=long-ago").content.decode()
        assert f"/job/{old[status].pk}/change/" in page


def test_where_too_many_are_in_a_state_the_window_holds_there_too(
    table: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "WINDOW", 50)
    page = table.get(f"{JOBS}?status=dead&job_type=nothing").content.decode()
    assert "Looked through the newest 50 jobs only" in page


def test_a_statement_that_takes_too_long_is_told_and_nothing_else_is_lost(
    table: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgjobs.admin.readonly.LIST_SECONDS", 0.001)
    page = table.get(f"{JOBS}?queue=nothing")
    assert page.status_code == 200
    assert b"Not available: took longer than 0.001 s" in page.content
    assert b"0 jobs" not in page.content
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)
