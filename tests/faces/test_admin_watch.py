"""The pages on which people see what is wrong, and the verbs on queues, bulk operations and the record."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from pgjobs.models import BulkOperation, Job, OperatorAction, QueuePause
from pgjobs.queue import audit, pauses, rollups
from tests.faces.pages import address, person, said, text_of
from tests.faces.rows import make_job, make_worker
from tests.support.own_database import QUEUE
from tests.workflows.rows import approval

pytestmark = pytest.mark.django_db

SECRET = {"token": "tok-5566", "order": 2**53 + 1}


def waiting_since(minutes: float, **columns: Any) -> Job:
    job = make_job(**columns)
    Job.objects.filter(pk=job.pk).update(available_at=Now() - timedelta(minutes=minutes))
    return job


def failures(count: int, fingerprint: str, **columns: Any) -> list[Job]:
    entry = {
        "attempt": 1,
        "kind": "error",
        "type": "ValueError",
        "message": "card refused",
        "fingerprint": fingerprint,
    }
    given = {
        "fingerprint": fingerprint,
        "error_class": "ValueError",
        "last_error": "card refused",
        "errors": [entry],
    }
    return [make_job("dead", **(given | columns)) for _ in range(count)]


def test_the_overview_says_that_nothing_is_stuck_only_when_nothing_is() -> None:
    make_worker()
    make_job()
    assert "Nothing is stuck" in text_of(person("ann"), address("overview_changelist"))


def test_the_overview_ranks_problems_with_since_why_and_a_way_to_them() -> None:
    waiting_since(19, queue="billing")
    pauses.pause("reports", actor="ana", reason="db migration")
    text = text_of(person("ann"), address("overview_changelist"))

    verdict = text[text.index('data-pgjobs-region="verdict"') : text.index('data-pgjobs-region="cards"')]
    assert verdict.index("NO_WORKER") < verdict.index("PAUSED")
    assert "19 min" in verdict and "db migration" in verdict
    assert address("queue_change", "billing") in verdict
    assert "Nothing is stuck" not in text


@pytest.mark.parametrize("kind", ["queue", "type"])
def test_a_pause_is_ended_from_the_overview_by_those_who_may(kind: str) -> None:
    pauses.pause("reports", kind=kind, actor="ana", reason="db migration")
    overview = address("overview_changelist")
    assert "<form" not in text_of(person("viewer"), overview).split('id="content-main"')[1]
    client = person("ann", "pause_queue")
    text = text_of(client, overview)
    form = text[text.index(f'action="{address("queue_resume")}"') :]
    given = dict(re.findall(r'name="(name|kind|next)" value="([^"]*)"', form[: form.index("</form>")]))

    response = client.post(address("queue_resume"), given)

    assert response["Location"] == overview
    assert not QueuePause.objects.exists()


def test_a_running_job_is_compared_with_what_is_usual_of_its_type() -> None:
    tally = rollups.Tally()
    for _ in range(20):
        tally.measure(0.1, 1.0)
    rollups.add({("default", "jobsapp.ok"): tally}, using=QUEUE)
    job = make_job("running")
    Job.objects.filter(pk=job.pk).update(started_at=Now() - timedelta(minutes=5))

    assert re.search(r"×2\d\d<|×3\d\d<", text_of(person("ann"), address("runningjob_changelist")))


def test_ticked_rows_are_moved_for_a_reason() -> None:
    job = make_job("dead")
    client = person("ann", "retry_job")
    assert 'name="reason"' in text_of(client, address("job_changelist"))
    client.post(
        address("job_changelist"),
        {"action": "retry_selected", "_selected_action": [job.pk], "index": "0", "reason": "INC-221"},
    )

    assert Job.objects.get().note == "retried by ann: INC-221"


def test_what_could_not_be_looked_at_is_unknown_and_never_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.health.work._WAITING", "SELECT pg_sleep(2), 1, 1, 1, 1, 1")
    response = person("ann").get(address("overview_changelist"))

    text = response.content.decode()
    assert response.status_code == 200
    assert "NO_WORKER could not be looked at" in text
    assert "Nothing is stuck" not in text
    assert "Not available" in text


def test_dead_jobs_stale_workers_and_the_backlog_are_one_click_from_the_overview() -> None:
    text = text_of(person("ann"), address("overview_changelist"))

    for name in ("deadjob", "worker", "queue", "runningjob", "errorgroup"):
        assert f'href="{address(f"{name}_changelist")}"' in text
    assert f'href="{address("job_changelist")}?status=ready"' in text


def test_an_empty_project_is_told_how_to_begin() -> None:
    assert "No job has ever been enqueued" in text_of(person("ann"), address("overview_changelist"))


def test_the_strip_has_the_pages_that_a_person_may_open() -> None:
    text = text_of(person("ann"), address("job_changelist"))
    strip = text[text.index('class="pgjobs-nav"') :]
    strip = strip[: strip.index("</nav>")]

    assert re.findall(r"/pgjobs/(\w+)/", strip) == [
        "overview",
        "errorgroup",
        "runningjob",
        "job",
        "deadjob",
        "queue",
        "worker",
        "execution",
        "wait",
        "tasktype",
        "operatoraction",
    ]
    assert strip.count('aria-current="page"') == 1


def test_two_causes_are_two_groups_and_one_shows_what_its_jobs_share() -> None:
    make_worker(host="host-b", code_version="v141")
    failures(3, "aaaa", queue="billing")
    failures(2, "bbbb", error_class="KeyError")
    client = person("ann", "bulk_job", "retry_job")
    text = text_of(client, address("errorgroup_changelist"))
    assert "2 causes" in text and text.count("errorgroup/aaaa/change/") == 1

    page = text_of(client, address("errorgroup_change", "aaaa"))

    assert "billing 3" in page and "v141 3" in page
    assert "data-pgjobs-copy" in page and "### ValueError" in page
    assert "fingerprint=aaaa" in page  # retry all
    assert "fp%3Aaaaa" in page  # the jobs


@pytest.mark.parametrize("fingerprint", ["nothing", "none", "%00"])
def test_a_cause_that_is_gone_says_so(fingerprint: str) -> None:
    text = text_of(person("ann"), f"{address('errorgroup_changelist')}{fingerprint}/change/")

    assert "No dead or failed job has this fingerprint any more" in text


def test_the_page_of_a_waiting_job_says_why_it_is_not_running() -> None:
    job = waiting_since(19, queue="billing")
    text = text_of(person("ann"), address("job_change", job.pk))

    assert "Why is it not running?" in text
    assert re.search(r"<strong>[^<]*no live worker[^<]*</strong>", text, re.IGNORECASE)


def test_secrets_are_shown_to_nobody_without_the_right_and_to_others_on_record() -> None:
    job = make_job("dead", payload=SECRET, result={"password": "pw-7788"}, last_error="token=tok-5566")
    pages = (address("job_change", job.pk), address("job_payload", job.pk), address("job_changelist"))
    viewer, other = person("viewer"), person("ann", "view_payload")
    for client in (viewer, other):
        for page in pages:
            answer = client.get(page)
            assert b"tok-5566" not in answer.content and b"pw-7788" not in answer.content, page
    assert str(2**53 + 1) in text_of(viewer, address("job_payload", job.pk))

    assert viewer.post(address("job_reveal", job.pk)).status_code == 403
    revealed = other.post(address("job_reveal", job.pk))

    text = revealed.content.decode()
    assert "tok-5566" in text and "pw-7788" in text
    assert "no-store" in revealed["Cache-Control"]
    told = [
        (each.verb, each.actor, each.done, each.refused) for each in OperatorAction.objects.order_by("pk")
    ]
    assert told == [("reveal", "viewer", 0, 1), ("reveal", "ann", 1, 0)]
    assert b"tok-5566" not in viewer.get(address("job_change", job.pk)).content
    assert other.get(address("job_reveal", job.pk)).status_code == 405


def test_a_job_that_is_gone_is_told_with_a_status_of_its_own() -> None:
    response = person("ann").get(address("job_change", 4_998_120))

    assert response.status_code == 404
    assert "Job 4998120 is not in the tables" in response.content.decode()


@pytest.mark.parametrize("kind", ["queue", "type"])
def test_a_pause_has_a_reason_an_end_and_a_record(kind: str) -> None:
    client = person("ann", "pause_queue")
    data = {"name": "reports", "kind": kind, "reason": "db migration", "minutes": "30"}
    response = client.post(address("queue_pause"), data, follow=True)

    pause = QueuePause.objects.get()
    assert (pause.kind, pause.name, pause.by, pause.reason) == (kind, "reports", "ann", "db migration")
    assert timedelta(minutes=29) < pause.until - pause.since <= timedelta(minutes=30)
    text = response.content.decode()
    assert "db migration" in text and "Resume" in text

    client.post(address("queue_resume"), {"name": "reports", "kind": kind})

    assert not QueuePause.objects.exists()
    assert [(each.verb, each.via, each.done) for each in OperatorAction.objects.order_by("pk")] == [
        ("pause", "admin", 1),
        ("resume", "admin", 1),
    ]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"reason": ""}, "reason"),
        ({"name": ""}, "name"),
        ({"minutes": "0"}, "minutes"),
        ({"kind": "planet"}, "kind"),
    ],
)
def test_a_pause_that_makes_no_sense_is_refused(data: dict[str, str], told: str) -> None:
    given = {"name": "reports", "kind": "queue", "reason": "why"} | data
    response = person("ann", "pause_queue").post(address("queue_pause"), given)

    assert f"Nothing was done. {told}" in said(response)
    assert not QueuePause.objects.exists()


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_pauses_are_for_those_who_may(verb: str) -> None:
    client = person("viewer")
    assert client.post(address(f"queue_{verb}"), {"name": "reports", "reason": "x"}).status_code == 403
    assert client.get(address(f"queue_{verb}")).status_code == 405
    refused = OperatorAction.objects.get()
    assert (refused.verb, refused.target_ids, refused.refused) == (verb, ["reports"], 1)


def test_the_page_of_a_queue_shows_what_is_next_and_any_name() -> None:
    first = waiting_since(5, queue="a/b c", priority=1)
    text = text_of(person("ann"), address("queue_changelist"))
    link = re.search(r'href="(/admin/pgjobs/queue/[^"]+/change/)"', text)
    assert link

    page = text_of(person("bob"), link[1])

    assert address("job_change", first.pk) in page and "a/b c" in page


def test_the_record_is_a_list_of_who_did_what_and_goes_out_as_csv() -> None:
    job = make_job("dead")
    person("ann", "retry_job").post(address("job_retry", job.pk), {"reason": "=1+1"})
    audit.record_denied(
        "cancel", target_kind="job", target_ids=[job.pk + 1], actor="eve", permission="pgjobs.cancel_job"
    )
    client = person("bob")
    text = text_of(client, address("operatoraction_changelist"))

    assert "refused for want of pgjobs.cancel_job" in text and "done 1" in text
    assert "eve" not in text_of(client, address("operatoraction_changelist") + f"?q={job.pk}")
    page = text_of(client, address("job_change", job.pk))
    assert "ann: retry job" in page
    export = client.get(address("operatoraction_export"))
    lines = b"".join(export.streaming_content).decode().splitlines()
    assert lines[0].startswith("id,at,actor") and len(lines) == 3
    assert "'=1+1" in lines[2] and ",=1+1" not in lines[2]


def test_nobody_changes_or_deletes_the_record() -> None:
    entry = audit.record("retry", target_kind="job", target_ids=[1], actor="ann", done=1)
    client = person("root", is_superuser=True)

    assert client.post(address("operatoraction_change", entry.pk), {"reason": "no"}).status_code == 403
    assert client.post(address("operatoraction_delete", entry.pk), {"post": "yes"}).status_code == 403
    assert client.get(address("operatoraction_change", entry.pk)).status_code == 200


BULK = {"status": "dead", "queue": "billing"}


def test_before_a_bulk_operation_it_says_how_many_and_which() -> None:
    failures(3, "aaaa", queue="billing")
    failures(1, "aaaa", queue="other")
    client = person("ann", "bulk_job", "retry_job")
    listed = text_of(client, address("job_changelist") + "?status=dead&queue=billing")
    assert address("job_bulk") + "?status=dead&amp;queue=billing" in listed

    text = text_of(client, address("job_bulk") + "?verb=retry&status=dead&queue=billing")

    assert "3 jobs." in text and "status dead, queue billing" in text
    assert "No worker lives" in text
    assert BulkOperation.objects.count() == 0


def test_a_bulk_operation_is_planned_begun_and_recorded() -> None:
    jobs = failures(3, "aaaa", queue="billing")
    make_worker()
    client = person("ann", "bulk_job", "retry_job", "view_bulkoperation")
    page = address("job_bulk") + "?verb=retry&status=dead&queue=billing"
    response = client.post(page, {"reason": "INC-221", "canary": "2"})

    operation = BulkOperation.objects.get()
    assert response["Location"] == address("bulkoperation_change", operation.pk)
    assert (operation.actor, operation.via, operation.reason) == ("ann", "admin", "INC-221")
    assert (operation.state, operation.done) == ("waiting", 2)
    text = text_of(client, response["Location"])
    assert "Release" in text and "first 2, then wait for a person" in text and "done 2" in text

    client.post(address("bulkoperation_release_canary", operation.pk), {"expected": "waiting"})

    operation.refresh_from_db()
    assert operation.state == "running"
    assert Job.objects.filter(pk__in=[job.pk for job in jobs], status="pending").count() == 2
    again = client.post(address("bulkoperation_stop", operation.pk), {"expected": "waiting"})
    assert "it was waiting when you looked; it is now running" in said(again)


@pytest.mark.parametrize(
    ("rights", "missing"),
    [(("retry_job",), "pgjobs.bulk_job"), (("bulk_job",), "pgjobs.retry_job")],
)
def test_a_bulk_operation_needs_both_rights(rights: tuple[str, ...], missing: str) -> None:
    failures(1, "aaaa")
    client = person("ann", *rights)
    page = address("job_bulk") + "?verb=retry&status=dead"

    assert client.get(page).status_code == 403
    assert client.post(page, {"reason": "x"}).status_code == 403
    assert OperatorAction.objects.get().details["missing_permission"] == missing
    assert "Act on all that match" not in text_of(client, address("job_changelist") + "?status=dead")


@pytest.mark.parametrize(
    ("query", "data", "told"),
    [
        ("verb=retry&status=dead", {"reason": ""}, "reason"),
        ("verb=retry&status=running", {"reason": "x"}, "Cannot be done"),
        ("verb=retry", {"reason": "x"}, "Cannot be done"),
        ("verb=retry&status=dead", {"reason": "x", "pace": "-1"}, "pace"),
    ],
)
def test_a_bulk_operation_that_makes_no_sense_is_told(query: str, data: dict[str, str], told: str) -> None:
    failures(1, "aaaa")
    response = person("ann", "bulk_job", "retry_job").post(f"{address('job_bulk')}?{query}", data)

    assert response.status_code == 200
    assert told in response.content.decode()
    assert BulkOperation.objects.count() == 0


def test_where_no_worker_lives_the_page_says_what_would_carry_it_on() -> None:
    failures(2, "aaaa")
    client = person("ann", "bulk_job", "retry_job", "view_bulkoperation")
    client.post(address("job_bulk") + "?verb=retry&status=dead", {"reason": "x", "pace": "0.01"})
    operation = BulkOperation.objects.get()

    assert f"manage.py pgjobs_bulk run {operation.pk}" in text_of(
        client, address("bulkoperation_change", operation.pk)
    )


def test_a_worker_has_a_page_with_what_it_holds() -> None:
    worker = make_worker("host.1.abc", rss_bytes=220_000_000, code_version="v141", busy=1)
    job = make_job("running", lease_owner="host.1.abc")
    text = text_of(person("ann"), address("worker_change", worker.pk))

    assert "220 MB" in text and "v141" in text and address("job_change", job.pk) in text
    assert person("bob").get(address("worker_change", 10**15)).status_code == 404


def test_the_badge_of_approvals_is_what_the_overview_has_read() -> None:
    approval()
    client = person("ann")
    text_of(client, address("overview_changelist"))

    assert re.search(
        r'Approvals <span class="pgjobs-badge">1</span>', text_of(client, address("job_changelist"))
    )
