"""A secret of a payload is in no text that another face shows: errors quote what a job was given."""

import json
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.urls import reverse

from pgjobs.bulk import control as bulk
from pgjobs.health.overview import overview
from pgjobs.metrics import collect
from pgjobs.models import Job, OperatorAction
from pgjobs.queue import control, pauses
from pgjobs.queue.acknowledging import acknowledge
from pgjobs.redaction import PAYLOAD_READ, UNSEEN
from tests.faces.pages import address, as_seen, person, said, text_of
from tests.faces.rows import make_job
from tests.workflows.rows import approval, execution, step

pytestmark = pytest.mark.django_db

SECRET = "horse battery staple"
ERROR = f"Declined: {'x' * 60} {'y' * 60} card {SECRET} of {{'n': 1}}"


def failing(payload: dict[str, Any]) -> Job:
    entry = {"attempt": 1, "kind": "error", "type": "Declined", "message": ERROR, "fingerprint": "f/1_2"}
    return make_job(
        "dead",
        payload=payload,
        last_error=ERROR,
        errors=[entry],
        error_class="Declined",
        fingerprint="f/1_2",
        note=f"by hand: {SECRET}",
    )


@pytest.mark.parametrize("padding", [0, 30_000], ids=["small", "too large for lists"])
def test_no_face_shows_what_the_payload_keeps_secret(
    padding: int, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(padding // 3))
    job = failing({"token": SECRET, "noise": noise})
    viewer = person("viewer", "view_bulkoperation")
    pages = [
        address("job_changelist"),
        f"{address('job_changelist')}?status=dead",
        address("deadjob_changelist"),
        address("errorgroup_changelist"),
        address("errorgroup_change", "f_2F1_5F2"),
        address("overview_changelist"),
        address("job_change", job.pk),
    ]
    texts = {page: text_of(viewer, page) for page in pages}
    with pytest.raises(SystemExit):
        call_command("pgjobs_status")
    texts["pgjobs_status"] = capsys.readouterr().out
    call_command("pgjobs_why", str(job.pk))
    texts["pgjobs_why"] = capsys.readouterr().out
    texts["json"] = json.dumps(overview().as_dict(), ensure_ascii=False)
    texts["metrics"] = collect()

    assert [name for name, text in texts.items() if "battery" in text] == []
    assert "Declined: xxx" in texts[address("errorgroup_change", "f_2F1_5F2")]
    shown = texts[address("errorgroup_changelist")]
    assert (UNSEEN if padding > PAYLOAD_READ else "card «redacted» of") in shown
    assert 'href="/admin/pgjobs/errorgroup/f_2F1_5F2/change/"' in shown


TYPED = "INC-221, mended with password=hunter2-4711 by hand"


def everything_done_for_a_reason() -> dict[str, Any]:
    """Each verb that takes a reason, with a secret in it: by hand in the admin, and by function where that is all."""
    root, why = person("root", is_superuser=True), {"actor": "ana", "reason": TYPED}
    job, flow, forked = failing({"n": 1}), execution("waiting"), execution("failed")
    asked = approval(execution("waiting"))
    root.post(address("job_retry", job.pk), {"reason": TYPED, **as_seen(job)})
    root.post(address("execution_fork", forked.pk), {"reason": TYPED, "from_ordinal": "0", **as_seen(forked)})
    root.post(address("execution_pause", flow.pk), {"reason": TYPED, **as_seen(flow)})
    rejected = {"decision": "reject", "reason": TYPED, "shown_hash": asked.context_hash}
    root.post(address("wait_decide", asked.pk), rejected)
    person("eve").post(address("job_cancel", job.pk), {"reason": TYPED, **as_seen(job)})
    stale = root.post(address("wait_decide", asked.pk), rejected)
    failing({"n": 2})
    pauses.pause("reports", **why)
    pauses.pause("jobsapp.ok", kind="type", **why)
    pauses.pause("mail", **why)
    pauses.resume("mail", **why)
    acknowledge(["f/1_2"], **why)
    operation = bulk.plan("retry", {"fingerprint": "f/1_2", "status": "dead"}, canary=1, **why)
    bulk.start(operation.pk, **why)
    bulk.pause(operation.pk, **why)
    gone = make_job("dead")
    control.discard([gone.pk], **why)
    return {"job": job, "flow": flow, "asked": asked, "bulk": operation, "root": root, "stale": stale}


def pages_of(done: dict[str, Any]) -> list[str]:
    """Every list of the app, and the pages of what something was done to."""
    found = [
        address(f"{model._meta.model_name}_changelist")
        for model in admin.site._registry
        if model._meta.app_label == "pgjobs" and model._meta.model_name != "archivedjob"
    ]
    found += [f"{address('errorgroup_changelist')}?state=all", f"{address('wait_changelist')}?decided=1"]
    found += [address("job_change", done["job"].pk), address("job_history", done["job"].pk)]
    found += [address("execution_change", done["flow"].pk), address("wait_change", done["asked"].pk)]
    found += [address("bulkoperation_change", done["bulk"].pk), address("errorgroup_change", "f_2F1_5F2")]
    found += [address("queue_change", "reports"), address("tasktype_change", "jobsapp.ok")]
    latest = OperatorAction.objects.order_by("-pk").values_list("pk", flat=True)
    return [*found, *(address("operatoraction_change", pk) for pk in latest), reverse("admin:index")]


COMMANDS = (
    "pgjobs_status",
    "pgjobs_status --json",
    "pgjobs_health",
    "pgjobs_health --json",
    "pgjobs_audit",
    "pgjobs_audit --json",
    "pgjobs_audit --ndjson",
    "pgjobs_events",
    "pgjobs_events --json",
    "pgjobs_bulk list",
    "pgjobs_bulk list --json",
    "pgjobs_bulk show {bulk.pk}",
    "pgjobs_bulk show {bulk.pk} --json",
    "pgjobs_errors list",
    "pgjobs_errors list --json",
    "pgjobs_errors show f/1_2",
    "pgjobs_errors show f/1_2 --json",
    "pgjobs_why {job.pk}",
    "pgjobs_why {job.pk} --json",
    "pgjobs_why --execution {flow.pk}",
    "pgjobs_why --execution {flow.pk} --json",
    "pgjobs_approve {asked.pk} --approve --user root",
    "pgjobs_pause --queue reports --reason again",
    "pgjobs_resume --queue reports",
)


def test_what_a_person_typed_is_shown_without_its_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    done = everything_done_for_a_reason()
    texts = {page: text_of(done["root"], page) for page in pages_of(done)}
    export = done["root"].get(address("operatoraction_export"))
    texts["csv"] = b"".join(export.streaming_content).decode()
    texts["told"] = said(done["stale"])
    for command in COMMANDS:
        capsys.readouterr()
        try:
            call_command(*command.format(**done).split())
            texts[command] = ""
        except (SystemExit, CommandError) as ended:
            texts[command] = str(ended)
        texts[command] += "".join(capsys.readouterr())
    texts["metrics"] = collect()
    texts["log entries"] = repr(list(LogEntry.objects.values_list("change_message", flat=True)))

    assert [name for name, text in texts.items() if "hunter2" in text] == []
    silent = {"pgjobs_bulk show", "pgjobs_errors list", "pgjobs_pause", "pgjobs_resume"}
    quoting = [command for command in COMMANDS if not command.startswith(tuple(silent))]
    assert [name for name in ("csv", "told", "log entries", *quoting) if "INC-221" not in texts[name]] == []


def test_a_fingerprint_of_another_service_breaks_no_page() -> None:
    job = failing({})
    Job.objects.filter(pk=job.pk).update(fingerprint="a\nb/../?#%")
    viewer = person("viewer")

    for page in (address("errorgroup_changelist"), address("overview_changelist")):
        assert "a_0Ab_2F.._2F_3F_23_25/change/" in text_of(viewer, page), page
    assert "Jobs now" in text_of(viewer, address("errorgroup_change", "a_0Ab_2F.._2F_3F_23_25"))


@pytest.mark.parametrize(
    "term", ["9" * 5_000, "q" + "9" * 5_000, "payload." + "a." * 60 + "b:1", "payload.a:" + "[" * 3_000]
)
def test_no_search_is_too_odd_to_be_answered(term: str) -> None:
    viewer = person("viewer")

    for page in ("job_changelist", "execution_changelist", "operatoraction_changelist"):
        response = viewer.get(address(page), {"q": term, "before_id": "9" * 5_000})
        assert response.status_code == 200, page


def test_ticks_that_no_row_can_have_are_left_out() -> None:
    job = make_job("dead")
    client = person("ann", "retry_job")
    data = {
        "_selected_action": ["9" * 5_000, "0", str(job.pk)],
        "seen": ["9" * 5_000 + ":dead:1", f"{job.pk}:dead:1"],
    }

    assert client.post(address("job_retry_ticked"), data).status_code == 302
    job.refresh_from_db()
    assert job.status == "pending"


def test_secrets_of_the_input_are_in_no_text_of_the_execution() -> None:
    told = "no account for horse battery staple"
    columns = {"input": {"kwargs": {"token": "horse battery staple"}}, "errors": [{"message": told}]}
    failed = execution("failed", last_error=told, **columns)
    execution("paused", pause_reason=told, **columns)
    step(failed, 0, error={"message": told})
    of_one = address("execution_change", failed.pk)
    client = person("viewer")

    for page in (address("execution_changelist"), of_one, f"{of_one}?step=step0%231"):
        text = text_of(client, page)
        assert "no account for «redacted»" in text
        assert "battery" not in text, page
