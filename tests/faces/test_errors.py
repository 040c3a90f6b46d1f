"""The pages and the command of errors: what is told of a cause, and what a person may say of it."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from pgjobs.bulk import control
from pgjobs.models import Acknowledgement, Job, OperatorAction
from pgjobs.queue.acknowledging import acknowledge, mute
from pgjobs.queue.standing import mark, standing
from tests.faces.pages import address, as_seen, person, said, text_of
from tests.faces.rows import make_job, make_worker

pytestmark = pytest.mark.django_db

LIST = "errorgroup_changelist"
SECRET = "horse battery staple"


def failing(fingerprint: str | None, count: int = 1, **columns: Any) -> list[Job]:
    message = f"card 4711 refused for {SECRET}"
    entry = {"kind": "error", "type": "Declined", "message": message, "traceback": f"Traceback:\n{message}"}
    given: dict[str, Any] = {
        "fingerprint": fingerprint,
        "error_class": "Declined",
        "last_error": message,
        "errors": [entry],
        "payload": {"token": SECRET, "tenant": "acme"},
        "completed_by": "w-1",
    }
    return [make_job("dead", **(given | columns)) for _ in range(count)]


def listed(client: Any, query: str = "") -> set[str]:
    text = text_of(client, f"{address(LIST)}{query}")
    return {name for name in ("aaaa", "bbbb", "cccc") if f"errorgroup/{name}/change/" in text}


def called(*arguments: str) -> tuple[int, str]:
    out, code = io.StringIO(), 0
    try:
        call_command("pgjobs_errors", *arguments, stdout=out)
    except CommandError as error:
        code = error.returncode
        out.write(str(error))
    return code, out.getvalue()


def told(*arguments: str) -> Any:
    code, text = called(*arguments, "--json")
    assert code == 0, text
    return json.loads(text)


@pytest.fixture
def three() -> None:
    """An open cause, an acknowledged one, and a muted one of another queue and type; the last is of the new code."""
    now = timezone.now()
    make_worker("w-1", code_version="v140", started_at=now - timedelta(days=2))
    make_worker("w-2", code_version="v141", started_at=now - timedelta(hours=3))
    old = now - timedelta(hours=5)
    failing("aaaa", 3, completed_at=old)
    failing("bbbb")
    failing("cccc", queue="mail", job_type="jobsapp.echo", completed_by="w-2")
    acknowledge(["bbbb"], actor="ben", reason="bank is down, password=x", link="https://tickets.example/7")
    mute(["cccc"], actor="ben", reason="nightly", until=timedelta(hours=2))


def test_tabs_and_filters_of_page_and_command_choose_the_same(three: None) -> None:
    client = person("ann")
    cases = [
        ("", [], {"aaaa"}),
        ("?state=acknowledged", ["--state", "acknowledged"], {"bbbb", "cccc"}),
        ("?state=all", ["--state", "all"], {"aaaa", "bbbb", "cccc"}),
        ("?state=all&queue=mail", ["--state", "all", "--queue", "mail"], {"cccc"}),
        ("?state=all&job_type=jobsapp.ok", ["--state", "all", "--type", "jobsapp.ok"], {"aaaa", "bbbb"}),
        ("?state=all&lately=1", ["--state", "all", "--lately"], {"bbbb", "cccc"}),
        ("?state=all&new=1", ["--state", "all", "--new"], {"cccc"}),
    ]
    for query, options, expected in cases:
        assert listed(client, query) == expected, query
        found = told("list", *options)["errors"]
        assert {each["fingerprint"] for each in found} == expected, options

    text = text_of(client, f"{address(LIST)}?state=all&queue=gone")
    assert "No errors of what you filter by" in text and "<option selected>gone</option>" in text
    assert "new since v141" in text and "new since v141" in text_of(client, address(LIST))


def test_the_list_says_who_knows_what_and_no_secret(three: None) -> None:
    text = text_of(person("ann"), f"{address(LIST)}?state=all")

    assert "bank is down, password=«redacted»" in text and 'href="https://tickets.example/7"' in text
    assert "pgjobs-state-muted" in text and "on v141" in text and "<strong>new</strong>" in text
    assert "pgjobs-spark" in text and "3 in the last 24 hours" in text
    assert 'class="pgjobs-badge">1<' in text_of(person("eva"), address("job_changelist"))
    for arguments in (["list", "--state", "all"], ["show", "aaaa"], ["show", "bbbb", "--json"]):
        code, said = called(*arguments)
        assert code == 0 and "battery" not in said and "password=x" not in said, arguments


def test_what_somebody_wrote_into_the_table_is_no_link(three: None) -> None:
    Acknowledgement.objects.update(link="javascript:alert(1)")
    text = text_of(person("ann"), f"{address(LIST)}?state=all")
    assert "javascript:alert(1)" in text and 'href="javascript' not in text


def test_one_verb_on_those_that_are_ticked(three: None) -> None:
    client = person("ann", "acknowledge_error")
    text = text_of(client, f"{address(LIST)}?state=all")
    muted = mark(standing()["cccc"])
    assert 'name="seen" value=":aaaa"' in text and f'name="seen" value="{muted}:cccc"' in text
    back = f"{address(LIST)}?state=all"
    data = {
        "fingerprint": ["aaaa", "cccc"],
        "seen": [":aaaa", "0000:cccc"],
        "reason": "all the same",
        "next": back,
    }
    response = client.post(address("errorgroup_acknowledge"), data)

    assert response["Location"] == back
    assert "Error aaaa: acknowledged" in said(response)
    assert "Error cccc: Nothing was done: it was acknowledged or muted otherwise when you looked" in said(
        response
    )
    assert {name: each.state for name, each in standing().items()} == {
        "aaaa": "acknowledged",
        "bbbb": "acknowledged",
        "cccc": "muted",
    }
    action = OperatorAction.objects.latest("pk")
    assert (action.verb, action.actor, action.via, action.done, action.refused) == (
        "acknowledge",
        "ann",
        "admin",
        1,
        1,
    )


@pytest.mark.parametrize(
    ("verb", "data", "says"),
    [
        ("acknowledge", {"fingerprint": "aaaa", "seen": ":aaaa"}, "reason="),
        ("acknowledge", {"reason": "r"}, "tick what"),
        ("acknowledge", {"reason": "r", "fingerprint": "aaaa", "seen": ":aaaa", "link": "ftp://x/"}, "link="),
        ("acknowledge", {"reason": "r" * 501, "fingerprint": "aaaa"}, "reason: "),
        ("mute", {"reason": "r", "fingerprint": "aaaa"}, "for how many hours"),
        ("mute", {"reason": "r", "fingerprint": "aaaa", "hours": "nan"}, "hours: "),
        ("unacknowledge", {"fingerprint": "zzzz", "seen": ":zzzz"}, "it is open"),
        ("plan", {"plan": "retry", "fingerprint": ["aaaa", "bbbb"]}, "tick the one"),
        ("plan", {"plan": "odd", "fingerprint": "aaaa"}, "tick the one"),
    ],
)
def test_what_makes_no_sense_is_said_and_changes_nothing(verb: str, data: dict[str, Any], says: str) -> None:
    failing("aaaa"), failing("bbbb")
    response = person("ann", "acknowledge_error", "bulk_job", "retry_job").post(
        address(f"errorgroup_{verb}"), data
    )

    assert response.status_code == 302 and says in said(response) and "othing was done" in said(response)
    assert not Acknowledgement.objects.exists()


@pytest.mark.parametrize("verb", ["acknowledge", "mute", "unacknowledge", "plan"])
def test_to_look_changes_nothing(verb: str) -> None:
    assert person("ann", "acknowledge_error").get(address(f"errorgroup_{verb}")).status_code == 405


def test_a_viewer_sees_no_buttons(three: None) -> None:
    client = person("viewer")
    for page in (address(LIST), address("errorgroup_change", "aaaa")):
        text = text_of(client, page)
        assert 'method="post"' not in text[text.index('id="content-main"') :], page


def test_the_ticked_cause_leads_to_the_plan_of_its_jobs() -> None:
    failing("aaaa")
    client = person("ann", "bulk_job", "retry_job", "discard_job")
    text = text_of(client, address(LIST))
    assert "Retry 5 as canary…" in text and "Discard…" in text
    asked = {"plan": "canary", "fingerprint": "aaaa"}
    response = client.post(address("errorgroup_plan"), asked)

    assert "status=dead&fingerprint=aaaa&verb=retry&canary=5" in response["Location"]
    assert client.get(response["Location"]).status_code == 200

    assert person("eve", "retry_job").post(address("errorgroup_plan"), asked).status_code == 403
    assert (OperatorAction.objects.latest("pk").verb, OperatorAction.objects.latest("pk").refused) == (
        "start",
        1,
    )


def test_the_page_of_a_cause_tells_what_is_known_of_it(three: None) -> None:
    failing("dddd", error_class="Timeout")
    make_job("pending", fingerprint="aaaa", attempt_count=2)
    operation = control.plan(
        "retry", {"status": "dead", "fingerprint": "aaaa"}, actor="ben", reason="bank is back"
    )
    rights = ("acknowledge_error", "bulk_job", "retry_job", "discard_job", "view_bulkoperation")
    client = person("ann", *rights)
    text = text_of(client, address("errorgroup_change", "aaaa"))

    for words in (
        "Payload tenant</dt><dd><strong>acme 3",
        "<dt>Retrying</dt><dd>1</dd>",
        "<dt>On version</dt><dd>v140</dd>",
        "Retry 5 as canary…",
        "Discard all…",
        "3 jobs ended by this cause in the last 24 h, most of them, 3, from",
        "Traceback of job",
        "attempt 1 of 5",
        "errorgroup/dddd/change/",
        "bank is back",
        f"bulkoperation/{operation.pk}/change/",
        "Nothing is recorded.",
    ):
        assert words in text, words
    assert "battery" not in text and "Open again" not in text.split("<form")[1]
    ticket = text.split('data-pgjobs-copy="')[1].split('"')[0]
    assert "### Declined" in ticket and "on version v140; open" in ticket

    make_job("failed", fingerprint="bbbb")
    text = text_of(client, address("errorgroup_change", "bbbb"))
    assert "Retry all dead…" in text and "Retry all failed…" in text
    assert "ben: acknowledge error bbbb, done 1: bank is down" in text and "Open again</button>" in text
    assert "acknowledged by ben since" in text


def test_a_cause_that_came_back_says_on_what(three: None) -> None:
    failing("bbbb", completed_by="w-3")
    make_worker("w-3", code_version="v142")
    client = person("ann", "acknowledge_error")

    assert "bbbb" in listed(client)
    text = text_of(client, address("errorgroup_change", "bbbb"))
    assert "came back on v142; acknowledged by ben" in text and 'name="seen" value=":bbbb"' in text
    [found] = [each for each in told("list")["errors"] if each["fingerprint"] == "bbbb"]
    assert found["state"] == "open" and found["standing"]["came_back_on"] == "v142"


def test_where_there_are_no_errors_it_says_who_cleared_the_last() -> None:
    assert "No open errors." in text_of(person("eva"), address(LIST))
    job = make_job("dead")
    person("ann", "retry_job").post(address("job_retry", job.pk), {"reason": "bank is back", **as_seen(job)})

    text = text_of(person("ben"), address(LIST))
    assert "Failed jobs were last cleared" in text and "ann: retry job" in text and "bank is back" in text


def test_where_not_all_causes_are_told_apart_no_page_says_that_none_is_open(
    three: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgjobs.health.errors.GROUPS", 1)
    text = text_of(person("ann"), f"{address(LIST)}?queue=mail")

    assert (
        "No open errors of what you filter by among the causes of the newest dead jobs; there are more"
        in text
    )
    assert "There are more than are told apart" in called("list", "--queue", "mail")[1]


def test_the_command_does_what_the_page_does(three: None) -> None:
    User.objects.create_user("eva")
    failing("aabb" + "0" * 36)
    assert called("ack", "aabb", "--reason", "known", "--link", "https://t.example/1") == (
        0,
        f"error aabb{'0' * 36}: acknowledged; it opens again when it happens on another version of the code\n",
    )
    assert (
        told("mute", "aaaa", "--for", "2h", "--reason", "r", "--user", "eva")["outcomes"][0]["state"]
        == "muted"
    )
    assert standing()["aaaa"].by == "eva"
    code, text = called("unack", "aaaa", "zzzz")
    assert code == 2 and "Left as before: 1 of 2 (unack)" in text
    code, text = called("ack", "gone", "--reason", "r")
    assert code == 4 and "no dead or failed job" in text
    action = OperatorAction.objects.latest("pk")
    assert (action.via, action.skipped, action.target_ids) == ("command", 1, ["gone"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "zzzz"], "No dead or failed job has the fingerprint"),
        (["show", "a\x00"], "is no fingerprint"),
        (["list", "--queue", "mial"], "Nothing is known of a queue 'mial'"),
        (["list", "--type", "jobsapp.okk"], "did you mean 'jobsapp.ok'?"),
        (["show", "1234"], "2 fingerprints begin"),
        (["ack", "aaaa", "--reason", " "], "reason="),
        (["ack", "aaaa"], "--reason"),
        (["mute", "aaaa", "--reason", "r"], "--for"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], says: str) -> None:
    failing("12345"), failing("12346"), failing("aaaa")
    code, text = called(*arguments)

    assert code == 1 and says in text


def test_the_cause_without_a_fingerprint_is_shown_and_cannot_be_acknowledged() -> None:
    failing(None)
    client = person("ann", "acknowledge_error", "bulk_job", "retry_job")

    assert 'name="fingerprint"' not in text_of(client, address(LIST))
    text = text_of(client, address("errorgroup_change", "none"))
    assert "no fingerprint" in text and "Acknowledge" not in text and "Retry all" not in text
    assert called("show", "none")[0] == 0


def test_a_fingerprint_of_another_service_can_be_acknowledged() -> None:
    odd = "a\nb/../?#%:<b>"
    failing(odd)
    client = person("ann", "acknowledge_error")
    text = text_of(client, address(LIST))
    key = text.split('name="fingerprint" value="')[1].split('"')[0]
    seen = text.split('name="seen" value="')[1].split('"')[0]
    client.post(address("errorgroup_acknowledge"), {"fingerprint": key, "seen": seen, "reason": "odd"})

    assert list(standing()) == [odd]
