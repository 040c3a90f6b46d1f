"""The pages: what they show, and that nothing in a row can hurt them."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.core.cache import cache
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from pgjobs.admin import tree
from pgjobs.models import (
    Activity,
    ArchivedJob,
    BulkOperation,
    DeadJob,
    ErrorGroup,
    Execution,
    Job,
    JobResult,
    OperatorAction,
    Overview,
    Queue,
    RunningJob,
    System,
    TaskType,
    Wait,
    Worker,
)
from tests.faces.conftest import ClientOf
from tests.faces.rows import make_job, make_worker

HOSTILE = "<script>alert('x')</script>"
ESCAPED = "&lt;script&gt;"
LISTS = [
    reverse(f"admin:pgjobs_{model._meta.model_name}_changelist")
    for model in (Overview, ErrorGroup, Job, RunningJob, DeadJob, Queue, Worker)
]
JOBS = reverse("admin:pgjobs_job_changelist")


def page_of(job: Job) -> str:
    return reverse("admin:pgjobs_job_change", args=[job.pk])


def text_of(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return response.content.decode()


def listed(client: Client, address: str) -> set[int]:
    """The ids of the rows on a list."""
    return {int(pk) for pk in re.findall(r"/pgjobs/job/(\d+)/change/", text_of(client, address))}


def hostile_rows() -> list[Job]:
    """Every column that a producer, a handler or a worker can fill, in every status."""
    entry = dict.fromkeys(("kind", "type", "message", "traceback", "worker", "at"), HOSTILE)
    made = []
    for status in ("pending", "running", "succeeded", "failed", "dead", "cancelled"):
        given: dict[str, Any] = {
            "job_type": HOSTILE,
            "queue": HOSTILE,
            "payload": {HOSTILE: HOSTILE},
            "result": HOSTILE,
            "last_error": HOSTILE,
            "errors": [entry, HOSTILE],
            "note": HOSTILE,
            "idempotency_key": HOSTILE,
            "progress": {"done": HOSTILE, "total": HOSTILE, "note": HOSTILE},
        }
        if status == "running":
            given["lease_owner"] = HOSTILE
        made.append(make_job(status, **given))
    make_worker(HOSTILE, host=HOSTILE, version=HOSTILE, queues=[HOSTILE])
    return made


@pytest.mark.parametrize("address", LISTS)
def test_lists_open_for_viewers_and_for_nobody_else(client_of: ClientOf, address: str) -> None:
    assert client_of("anonymous").get(address).status_code == 302
    assert client_of("outsider").get(address).status_code == 302
    assert client_of("stranger").get(address).status_code == 403
    assert client_of("viewer").get(address).status_code == 200


def test_lists_of_jobs_stay_shut_without_view_permission(client_of: ClientOf) -> None:
    job = make_job("dead")
    client = client_of("blind")
    for address in (*LISTS, page_of(job)):
        assert client.get(address).status_code == 403


def test_nothing_from_a_row_is_markup(client_of: ClientOf) -> None:
    jobs = hostile_rows()
    client = client_of("superuser")
    worker = reverse("admin:pgjobs_worker_change", args=[Worker.objects.get().pk])
    for address in (*LISTS, *map(page_of, jobs), worker):
        text = text_of(client, address)
        assert ESCAPED in text, address
        assert "<script>alert" not in text, address


def test_no_page_needs_inline_script_or_style(client_of: ClientOf) -> None:
    jobs = [make_job("dead", errors=[{"attempt": 1, "traceback": "boom"}]), make_job("running")]
    make_worker()
    client = client_of("superuser")
    for address in (*LISTS, *map(page_of, jobs)):
        text = text_of(client, address)
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), address
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", text), address


@pytest.mark.parametrize("job_id", ["999", "99999999999999999999", "0", "-1", "abc"])
def test_a_job_that_is_not_there_is_a_404(client_of: ClientOf, job_id: str) -> None:
    response = client_of("viewer").get(f"{JOBS}{job_id}/change/")
    assert response.status_code == 404


@pytest.mark.parametrize("name", ["add", "delete"])
def test_nobody_adds_edits_or_deletes(client_of: ClientOf, name: str) -> None:
    job = make_job("dead")
    client = client_of("superuser")
    address = reverse(f"admin:pgjobs_job_{name}", args=[] if name == "add" else [job.pk])
    assert client.get(address).status_code == 403
    assert client.post(address, {"post": "yes"}).status_code == 403
    assert client.post(page_of(job), {"status": "pending"}).status_code == 403
    job.refresh_from_db()
    assert job.status == "dead"


def test_the_detail_page_tells_the_whole_story(client_of: ClientOf) -> None:
    entry = {"attempt": 1, "kind": "lost", "worker": "host.9.f00", "heartbeat_at": "2026-01-02T03:04:05Z"}
    raised = {
        "attempt": 2,
        "kind": "error",
        "type": "ValueError",
        "message": "bad page",
        "traceback": "line 7",
    }
    job = make_job("dead", payload={"document_id": 7}, errors=[entry, raised], last_error="bad page")
    text = text_of(client_of("viewer"), page_of(job))
    for part in ("document_id", "ValueError: bad page", "line 7", "host.9.f00", "2026-01-02 03:04:05"):
        assert part in text
    assert text.index("bad page") < text.index("the worker went silent")
    assert "<pre" in text


def test_rows_written_by_other_services_are_shown_whatever_their_shape(client_of: ClientOf) -> None:
    client = client_of("viewer")
    for odd in ({"not": "a list"}, [1, None, ["x"]], "text", []):
        job = make_job("failed", errors=odd, progress=odd, result=odd)
        assert client.get(page_of(job)).status_code == 200
    make_worker(queues={"odd": 1})
    assert client.get(reverse("admin:pgjobs_worker_changelist")).status_code == 200


def test_very_long_values_are_cut_on_the_page_only(client_of: ClientOf) -> None:
    job = make_job(payload={"text": "x" * (tree.SHOWN_CHARACTERS + 1000)})
    text = text_of(client_of("viewer"), page_of(job))
    assert "Cut here: the row holds more." in text
    assert len(text) < tree.SHOWN_CHARACTERS + 40_000


def test_ids_beyond_what_a_browser_can_count_stay_exact(client_of: ClientOf, settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    job = make_job("dead", id=2**53 + 1)
    client = client_of("retrier")
    assert listed(client, JOBS) == {2**53 + 1}
    text = text_of(client, page_of(job))
    assert f"/pgjobs/job/{2**53 + 1}/retry/" in text


def test_dead_and_running_lists_hold_their_own(client_of: ClientOf) -> None:
    made = {status: make_job(status).pk for status in ("pending", "running", "succeeded", "failed", "dead")}
    client = client_of("viewer")
    dead = reverse("admin:pgjobs_deadjob_changelist")
    assert listed(client, dead) == {made["dead"]}
    assert listed(client, f"{dead}?status=failed") == {made["failed"]}
    assert listed(client, reverse("admin:pgjobs_runningjob_changelist")) == {made["running"]}


def test_a_row_of_another_list_leads_to_the_page_of_the_job(client_of: ClientOf) -> None:
    job = make_job("dead")
    response = client_of("viewer").get(reverse("admin:pgjobs_deadjob_change", args=[job.pk]))
    assert (response.status_code, response["Location"]) == (302, page_of(job))


def test_running_jobs_show_lease_and_heartbeat_by_the_clock_of_the_database(client_of: ClientOf) -> None:
    for name, left, beat in (("sound", 25, 5), ("lapsed", -90, 120)):
        job = make_job("running", job_type=name)
        Job.objects.filter(pk=job.pk).update(
            lease_expires_at=Now() + timedelta(seconds=left), heartbeat_at=Now() - timedelta(seconds=beat)
        )
    text = text_of(client_of("viewer"), reverse("admin:pgjobs_runningjob_changelist"))
    assert re.search(r"overdue by 1 min 3\d s", text)
    assert re.search(r"2[45] s left", text)
    assert text.index("lapsed") < text.index("sound")  # the lease that needs a person comes first


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("status=pending", {"waiting", "suspect"}),
        ("status=dead", {"dead"}),
        ("status=nonsense", set()),
        ("queue=slow", {"suspect", "dead"}),
        ("job_type=gone.type", {"gone"}),
        ("queue=slow&status=pending", {"suspect"}),
        ("queue=%00", set()),
        ("q=jobsapp.ok", {"waiting", "suspect", "dead"}),
        ("q=key-1", {"gone"}),
        ("q=key-of-another-life", {"dead"}),
        ("q=jobsapp", set()),
        ("q=99999999999999999999", set()),
    ],
)
def test_filters_and_search_are_exact(client_of: ClientOf, query: str, wanted: set[str]) -> None:
    made = {
        "waiting": make_job(),
        "suspect": make_job(queue="slow", crash_count=1),
        "dead": make_job("dead", queue="slow"),
        "gone": make_job("succeeded", job_type="gone.type", idempotency_key="key-1"),
    }
    JobResult.objects.create(idempotency_key="key-of-another-life", job=made["dead"], produced_by="w")
    found = listed(client_of("viewer"), f"{JOBS}?{query}")
    assert found == {made[name].pk for name in wanted}


def test_a_number_finds_the_job_and_its_namesake_key(client_of: ClientOf) -> None:
    first = make_job()
    second = make_job(idempotency_key=str(first.pk))
    make_job()
    assert listed(client_of("viewer"), f"{JOBS}?q={first.pk}") == {first.pk, second.pk}


@pytest.mark.parametrize("lookup", ["last_error__icontains=x", "payload__n=1", "lease_token__isnull=1"])
def test_lookups_that_read_every_row_are_refused(client_of: ClientOf, lookup: str) -> None:
    assert client_of("superuser").get(f"{JOBS}?{lookup}").status_code == 400


def test_workers_are_judged_by_their_heartbeat(client_of: ClientOf) -> None:
    make_worker("fresh")
    silent = make_worker("mute")
    Worker.objects.filter(pk=silent.pk).update(heartbeat_at=Now() - timedelta(seconds=600))
    gone = make_worker("gone")
    Worker.objects.filter(pk=gone.pk).update(stopped_at=Now() - timedelta(seconds=5))
    make_job("running", lease_owner="fresh")
    text = text_of(client_of("viewer"), reverse("admin:pgjobs_worker_changelist"))
    rows = {
        name: next(row for row in text.split("<tr") if f">{name}<" in row)
        for name in ("fresh", "mute", "gone")
    }
    assert ">live<" in rows["fresh"]
    assert "silent for 10 min" in rows["mute"]
    assert re.search(r"stopped [56] s ago", rows["gone"])


def test_the_backlog_page_names_queues_waits_and_orphans(client_of: ClientOf) -> None:
    job = make_job(queue="letters", job_type="gone.type")
    Job.objects.filter(pk=job.pk).update(available_at=Now() - timedelta(seconds=130))
    text = text_of(client_of("viewer"), reverse("admin:pgjobs_queue_changelist"))
    assert "letters" in text
    assert "No live worker serves" in text
    assert re.search(r"2 min 1\d s", text)
    assert f"{JOBS}?status=pending&amp;queue=letters&amp;job_type=gone.type" in text
    make_worker(queues=["letters"])
    assert "No live worker serves" not in text_of(
        client_of("superuser"), reverse("admin:pgjobs_queue_changelist")
    )


def test_counts_end_at_the_limit_and_say_so(client_of: ClientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.admin.readonly.COUNT_LIMIT", 3)
    for module in ("pgjobs.health.queues", "pgjobs.admin.queuerows"):
        monkeypatch.setattr(f"{module}.COUNT_LIMIT", 3)
    for _ in range(3):
        make_job()
    client = client_of("viewer")
    backlog = reverse("admin:pgjobs_queue_changelist")
    assert "3+ jobs" not in text_of(client, JOBS) and ">3+<" not in text_of(client, backlog)
    make_job()
    cache.clear()
    assert "3+ jobs" in text_of(client, JOBS)
    assert ">3+<" in text_of(client, backlog)


def test_discarded_jobs_are_out_of_sight_until_asked_for(client_of: ClientOf) -> None:
    seen, discarded = make_job("dead"), make_job("dead", discarded_at=Now())
    client = client_of("viewer")
    for address in (reverse("admin:pgjobs_deadjob_changelist"), f"{JOBS}"):
        query = f"{address}?status=dead"
        assert listed(client, query) == {seen.pk}
        assert listed(client, f"{query}&discarded=too") == {seen.pk, discarded.pk}
        assert listed(client, f"{query}&discarded=only") == {discarded.pk}


def test_every_page_of_the_app_is_in_the_index_of_the_site(client_of: ClientOf) -> None:
    text = text_of(client_of("viewer"), reverse("admin:index"))
    assert all(f'href="{address}"' in text for address in LISTS)
    assert {model for model in admin.site._registry if model._meta.app_label == "pgjobs"} == {
        Job,
        RunningJob,
        DeadJob,
        Queue,
        Worker,
        Execution,
        Wait,
        Overview,
        ErrorGroup,
        OperatorAction,
        TaskType,
        Activity,
        BulkOperation,
        System,  # for those with its own permission
        ArchivedJob,  # has no list: a job's address and a search by id lead to its page
    }
