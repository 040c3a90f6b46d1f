"""Limits of pages: each statement of each has one of time; and where what is offered is cut, that is told."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.test import Client

from pgjobs.admin import guards, limits, readonly
from pgjobs.models import BulkOperation, Job, OperatorAction, Worker
from pgjobs.queue import audit, stats
from tests.faces.conftest import ClientOf
from tests.faces.pages import address, as_seen, person, said, text_of
from tests.faces.rows import make_job, make_worker
from tests.health.situations import bulk
from tests.leases.sessions import sessions, transaction_open
from tests.support.own_database import connection
from tests.workflows.rows import approval, execution, step

_OTHERS = (
    "django_session",
    "auth_user",
    "auth_permission",
    "auth_group",
    "django_content_type",
    "django_admin_log",
)
_BOUNDS = (
    "SAVEPOINT",
    "RELEASE",
    "ROLLBACK",
    "BEGIN",
    "COMMIT",
    "SELECT current_setting('statement_timeout'",
)


@contextmanager
def unbounded() -> Iterator[list[str]]:
    """The statements on our own tables that ran while no limit was in force."""
    found: list[str] = []

    def spy(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        text = sql.lstrip()
        if not text.startswith(_BOUNDS) and not any(f'"{table}"' in text for table in _OTHERS):
            with connection.connection.cursor() as cursor:
                (limit,) = cursor.execute("SELECT current_setting('statement_timeout')").fetchone()
            if limit == "0":
                found.append(text[:200])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(spy):
        yield found


def made(client: Client) -> list[str]:
    """A row of everything, and the address of every page that shows it."""
    make_worker()
    dead = make_job("dead", fingerprint="ab" * 20, error_class="E", last_error="E: no", idempotency_key="k")
    waits, held = make_job(crash_count=1), make_job("running")
    asked = approval()
    step(asked.execution, 0, error={"type": "E", "message": "no"})
    failed = execution("failed")
    bulk(10)
    audit.record("retry", target_kind="job", target_ids=[dead.pk], actor="ann", done=1)
    lists = ("overview", "errorgroup", "runningjob", "job", "deadjob", "queue", "worker", "execution", "wait")
    others = ("bulkoperation", "operatoraction", "tasktype", "activity", "system")
    pages = [address(f"{name}_changelist") for name in (*lists, *others)]
    pages += [f"{address('tasktype_changelist')}?range=7d", address("tasktype_change", "jobsapp.ok")]
    pages += [f"{address('activity_changelist')}?kind=operator&job_type=jobsapp.ok"]
    jobs, queued, inbox = (
        address("job_changelist"),
        address("queue_change", "default"),
        address("wait_changelist"),
    )
    pages += [
        f"{jobs}?{query}" for query in ("status=dead&queue=x", "q=4711", "q=k", "queue=x", "before_id=5")
    ]
    pages += [queued, f"{inbox}?decided=1", f"{address('execution_changelist')}?q=k", address("job_newer", 0)]
    pages += [address(f"job_{name}", waits.pk) for name in ("change", "cancel", "payload")]
    pages += [
        address("job_change", dead.pk),
        address("job_options", dead.pk),
        address("job_release", held.pk),
    ]
    pages += [
        f"{address('job_bulk')}?status=dead&verb=retry&job_type=jobsapp.ok",
        address("wait_change", asked.pk),
    ]
    pages += [
        address(f"execution_{name}", asked.execution_id) for name in ("change", "fork", "signal", "cancel")
    ]
    pages += [
        f"{address('execution_change', asked.execution_id)}?step=step0%231",
        address("execution_change", failed.pk),
    ]
    pages += [
        address("errorgroup_change", dead.fingerprint),
        address("worker_change", Worker.objects.get().pk),
        address("bulkoperation_change", BulkOperation.objects.get().pk),
        address("operatoraction_change", OperatorAction.objects.get().pk),
        address("operatoraction_export"),
    ]
    return pages


@pytest.mark.django_db
def test_every_statement_of_every_page_has_a_limit_of_time(client_of: ClientOf) -> None:
    client = client_of("superuser")
    unlimited: dict[str, list[str]] = {}
    for page in made(client):
        with unbounded() as found:
            answer = client.get(page)
            body = b"".join(answer.streaming_content) if answer.streaming else answer.content
        assert answer.status_code == 200 and b"Not available" not in body, (page, answer.status_code)
        if found:
            unlimited[page] = found
    assert not unlimited
    assert client_of("viewer").get(address("wait_changelist")).status_code == 403


@pytest.mark.django_db
def test_the_recorder_finds_what_has_no_limit() -> None:
    with unbounded() as found:
        Job.objects.count()
    assert len(found) == 1


@pytest.mark.django_db
def test_queues_beyond_those_that_are_offered_are_reached_by_name_and_counted() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (job_type, queue) "
            "SELECT 'jobsapp.ok', 'q-' || n FROM generate_series(1, 205) AS n"
        )
    jobs, ann = address("job_changelist"), person("ann", "retry_job")
    text = text_of(ann, f"{jobs}?status=ready&p=1")

    assert text.count("queue=q-") == stats.QUEUE_LIMIT and "The first 200 by name; there are more." in text
    form = text[text.index('class="pgjobs-name-filter"') :]
    assert '<input type="hidden" name="status" value="ready">' in form[: form.index("</form>")]
    assert "205 jobs" in text and '<span class="pgjobs-count">205</span>' in text
    last = text_of(ann, f"{jobs}?status=ready&queue=q-99")
    assert re.search(r">\s*1 job\s", last) and "/change/" in last

    dead = make_job("dead")
    options = address("job_options", dead.pk)
    refused = ann.post(options, {"queue": "q-999", **as_seen(dead)}).content.decode()
    assert "Nothing is known of a queue &#x27;q-999&#x27;" in refused and 'value="q-999"' in refused
    assert ann.post(options, {"queue": "q-205", **as_seen(dead)}).status_code == 302
    dead.refresh_from_db()
    assert (dead.status, dead.queue) == ("pending", "q-205")


@pytest.mark.django_db(transaction=True)
def test_verbs_end_in_time_and_say_that_nothing_was_done(
    client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (limits, readonly, guards):
        monkeypatch.setattr(module, "PANEL_SECONDS", 0.1)
    monkeypatch.setattr(limits, "ACT_SECONDS", 0.2)
    client, dead, paused = client_of("superuser"), make_job("dead"), execution("paused", pause_reason="why")
    forms = [address("job_options", dead.pk), address("job_discard", dead.pk)]
    forms += [address(f"execution_{name}", paused.pk) for name in ("fork", "signal", "cancel")]
    both = "pgjobs_job, pgjobs_execution"
    reason = {"reason": "INC-221", "name": "paid", "from_ordinal": "0", **as_seen(dead, paused)}

    with sessions("other") as [other]:
        held = transaction_open(other, lambda: statement(f"LOCK TABLE {both} IN ACCESS EXCLUSIVE MODE"))
        for form in forms:
            answer = client.get(form)
            assert answer.status_code == 200, form
            assert "Not available: took longer than 0.1 s" in answer.content.decode(), form
        unread = client.post(address("job_retry", dead.pk), as_seen(dead))
        held.finish()
        held = transaction_open(other, lambda: statement(f"LOCK TABLE {both} IN EXCLUSIVE MODE"))
        answers = [client.post(form, reason) for form in forms]
        ticked = {"action": "retry_selected", "_selected_action": [dead.pk], "index": "0", **as_seen(dead)}
        answers.append(client.post(address("job_changelist"), ticked))
        plan = f"{address('job_bulk')}?status=dead&verb=retry&job_type=jobsapp.ok"
        answers.append(client.post(plan, {**reason, "upper_id": dead.pk}))
        held.finish()

    assert unread.status_code == 302 and "Nothing was done: took longer than 0.1 s." in said(unread)
    for answer in answers[:-1]:
        told = said(answer) if answer.status_code == 302 else answer.content.decode()
        assert "Nothing was done: took longer than 0.2 s." in told, answer.wsgi_request.path
    assert answers[-1].status_code == 302 and BulkOperation.objects.get().state == "running"
    dead.refresh_from_db()
    paused.refresh_from_db()
    assert (dead.status, dead.discarded_at, paused.status) == ("dead", None, "paused")
    assert not OperatorAction.objects.exclude(target_kind="bulk").exists()
    assert client.post(forms[0], reason).status_code == 302
    dead.refresh_from_db()
    assert dead.status == "pending"


def statement(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
