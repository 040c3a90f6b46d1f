"""A secret of a payload is in no text that another face shows: errors quote what a job was given."""

import json
from typing import Any

import pytest
from django.core.management import call_command

from pgjobs.health.overview import overview
from pgjobs.metrics import collect
from pgjobs.models import Job
from pgjobs.redaction import PAYLOAD_READ, UNSEEN
from tests.faces.pages import address, person, text_of
from tests.faces.rows import make_job
from tests.workflows.rows import execution, step

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
