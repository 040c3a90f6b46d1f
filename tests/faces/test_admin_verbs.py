"""Retry and cancel from the pages: who may, how, and what it leaves behind."""

import html
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from pgjobs.models import Job, OperatorAction, QueuePause
from pgjobs.queue import pauses
from tests.faces.conftest import ClientOf
from tests.faces.pages import address, as_seen, person, said, text_of
from tests.faces.rows import make_job

KINDS = ("anonymous", "outsider", "stranger", "viewer", "retrier", "canceller", "blind", "superuser")
MAY = {"retry": {"retrier", "superuser"}, "cancel": {"canceller", "superuser"}}
BEFORE = {"retry": "dead", "cancel": "pending"}
AFTER = {"retry": "pending", "cancel": "cancelled"}
LIST = reverse("admin:pgjobs_job_changelist")


def button(verb: str, pk: int) -> str:
    return reverse(f"admin:pgjobs_job_{verb}", args=[pk])


def status_of(job: Job) -> str:
    return Job.objects.values_list("status", flat=True).get(pk=job.pk)


def tick(client: Client, action: str, jobs: list[Job], address: str = LIST, **more: str) -> Any:
    ids = [job.pk for job in jobs]
    return client.post(
        address, {"action": action, "_selected_action": ids, "index": "0", **as_seen(*jobs), **more}
    )


@pytest.mark.parametrize("verb", MAY)
@pytest.mark.parametrize("kind", KINDS)
def test_the_button_obeys_the_permission_of_its_verb(client_of: ClientOf, kind: str, verb: str) -> None:
    job = make_job(BEFORE[verb])
    response = client_of(kind).post(button(verb, job.pk), {"reason": "asked for", **as_seen(job)})
    if kind in ("anonymous", "outsider"):
        assert response.status_code == 302 and "/login/" in response["Location"]
    elif kind in MAY[verb]:
        assert response.status_code == 302 and response["Location"].endswith(f"/job/{job.pk}/change/")
    else:
        assert response.status_code == 403
    assert status_of(job) == (AFTER if kind in MAY[verb] else BEFORE)[verb]
    assert LogEntry.objects.count() == (1 if kind in MAY[verb] else 0)


@pytest.mark.parametrize("verb", MAY)
@pytest.mark.parametrize("method", ["get", "head", "options", "put", "delete"])
def test_no_other_method_moves_anything(client_of: ClientOf, verb: str, method: str) -> None:
    """GET asks whether it is to be done; nothing but POST does it."""
    job = make_job(BEFORE[verb])
    response = getattr(client_of("superuser"), method)(button(verb, job.pk))
    assert response.status_code == (200 if method in ("get", "head") else 405)
    assert status_of(job) == BEFORE[verb]
    assert OperatorAction.objects.count() == 0


@pytest.mark.parametrize("verb", MAY)
def test_a_post_from_another_site_is_refused(client_of: ClientOf, verb: str) -> None:
    job = make_job(BEFORE[verb])
    response = client_of("superuser", enforce_csrf_checks=True).post(button(verb, job.pk), as_seen(job))
    assert response.status_code == 403
    assert status_of(job) == BEFORE[verb]


@pytest.mark.parametrize("verb", MAY)
@pytest.mark.parametrize("kind", KINDS)
def test_the_action_obeys_the_same_permission(client_of: ClientOf, kind: str, verb: str) -> None:
    job = make_job(BEFORE[verb])
    client = client_of(kind)
    tick(client, f"{verb}_selected", [job])
    assert status_of(job) == (AFTER if kind in MAY[verb] else BEFORE)[verb]
    page = client.get(LIST)
    assert (f"{verb}_selected".encode() in page.content) == (kind in MAY[verb])


@pytest.mark.parametrize("verb", MAY)
@pytest.mark.parametrize("kind", ["viewer", "retrier", "canceller", "superuser"])
def test_only_those_who_may_see_the_button(client_of: ClientOf, kind: str, verb: str) -> None:
    job = make_job(BEFORE[verb])
    page = client_of(kind).get(reverse("admin:pgjobs_job_change", args=[job.pk]))
    assert (button(verb, job.pk).encode() in page.content) == (kind in MAY[verb])


def test_a_button_that_does_not_fit_says_why(client_of: ClientOf) -> None:
    job = make_job("succeeded")
    page = client_of("retrier").get(reverse("admin:pgjobs_job_change", args=[job.pk])).content.decode()
    assert "disabled" in page
    assert "it is succeeded; only cancelled, dead, failed jobs can be retried." in page


def test_mixed_rows_are_counted_one_by_one(client_of: ClientOf) -> None:
    dead, failed, running, done = (make_job(status) for status in ("dead", "failed", "running", "succeeded"))
    gone = Job(pk=10**12, status="dead", attempt_count=1)
    response = tick(client_of("retrier"), "retry_selected", [dead, failed, running, done, gone])
    text = said(response)
    assert "2 jobs retried." in text
    assert "3 skipped, not retried:" in text
    assert f"{running.pk} (it is running" in text
    assert f"{done.pk} (it is succeeded" in text
    assert f"{10**12} (there is no such job)" in text
    assert [status_of(job) for job in (dead, failed, running, done)] == [
        "pending",
        "pending",
        "running",
        "succeeded",
    ]
    assert sorted(LogEntry.objects.values_list("object_id", flat=True)) == sorted(
        [str(dead.pk), str(failed.pk)]
    )


def test_a_row_that_left_the_list_since_is_reported_not_forgotten(client_of: ClientOf) -> None:
    job = make_job("pending")
    response = tick(client_of("retrier"), "retry_selected", [job], reverse("admin:pgjobs_deadjob_changelist"))
    assert f"Nothing was done: {job.pk} (it is pending" in said(response)


def test_a_whole_list_is_never_acted_upon(client_of: ClientOf) -> None:
    jobs = [make_job("dead") for _ in range(3)]
    response = tick(client_of("retrier"), "retry_selected", [jobs[0]], select_across="1")
    assert "Nothing was done" in said(response)
    assert {status_of(job) for job in jobs} == {"dead"}


def test_the_dead_list_retries_and_the_running_list_cancels(client_of: ClientOf) -> None:
    dead, running = make_job("dead"), make_job("running")
    client = client_of("superuser")
    tick(client, "retry_selected", [dead], reverse("admin:pgjobs_deadjob_changelist"))
    client.post(
        reverse("admin:pgjobs_job_cancel_ticked"), {"_selected_action": [running.pk], **as_seen(running)}
    )
    assert (status_of(dead), status_of(running)) == ("pending", "cancelled")


def test_who_and_why_stand_on_the_job_and_in_its_history(client_of: ClientOf) -> None:
    job = make_job("dead", errors=[{"attempt": 1, "kind": "error"}])
    client = client_of("retrier")
    client.post(button("retry", job.pk), {"reason": "the scanner works again", **as_seen(job)})
    job.refresh_from_db()
    assert job.note == "retried by retrier: the scanner works again"
    assert job.errors == [{"attempt": 1, "kind": "error"}]
    history = client.get(reverse("admin:pgjobs_job_history", args=[job.pk])).content.decode()
    assert "Retried: the scanner works again" in history
    entry = LogEntry.objects.get()
    assert entry.get_admin_url() == reverse("admin:pgjobs_job_change", args=[job.pk])


@pytest.mark.parametrize("reason", ["x" * 201, "nul \x00"])
def test_a_reason_that_cannot_be_kept_stops_the_verb(client_of: ClientOf, reason: str) -> None:
    job = make_job("dead")
    response = client_of("retrier").post(button("retry", job.pk), {"reason": reason, **as_seen(job)})
    assert "Nothing was done" in said(response)
    assert status_of(job) == "dead"


@pytest.mark.parametrize("pk", [999, 10**25])
def test_a_verb_on_a_job_that_is_not_there_is_a_404(client_of: ClientOf, pk: int) -> None:
    assert client_of("retrier").post(button("retry", pk)).status_code == 404


def test_verb_and_log_are_one_commit(client_of: ClientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job("dead")
    client = client_of("retrier")
    client.raise_request_exception = False
    monkeypatch.setattr(LogEntry.objects, "log_actions", lambda **kwargs: 1 / 0, raising=False)
    response = client.post(button("retry", job.pk), as_seen(job))
    assert response.status_code == 500
    assert status_of(job) == "dead"


def free_form(text: str) -> dict[str, Any]:
    """What the form for any name carries: the pauses that the page shows."""
    shown = re.findall(r'form="pgjobs-pause" name="shown" value="([^"]*)"', text)
    return {"kind": "queue", "reason": "mine", "shown": list(map(html.unescape, shown))}


@pytest.mark.django_db
def test_a_pause_by_name_goes_by_the_pauses_that_the_page_showed() -> None:
    name = "it's: a <queue>"
    make_job(queue=name)
    ann, page, verb = person("ann", "pause_queue"), address("queue_changelist"), address("queue_pause")
    nothing_paused = free_form(text_of(ann, page))
    pauses.pause(name, actor="bob", reason="his")

    stale = ann.post(verb, {**nothing_paused, "name": name})
    assert "Nothing was done: it was not paused when you looked; it is paused by bob since" in said(stale)
    assert QueuePause.objects.get().reason == "his"

    cache.clear()
    seen = free_form(text_of(ann, page))
    assert len(seen["shown"]) == 2
    assert "pause changed" in said(ann.post(verb, {**seen, "name": name}))
    assert "it was paused otherwise when you looked" in said(
        ann.post(verb, {**seen, "name": name, "reason": "x"})
    )
    assert QueuePause.objects.get().reason == "mine"

    pauses.resume(name, actor="bob")
    assert "it is no longer" in said(ann.post(verb, {**seen, "name": name}))
    assert not QueuePause.objects.exists()
    assert "did you mean" in said(ann.post(verb, {**nothing_paused, "name": "it's: a <quue>"}))
