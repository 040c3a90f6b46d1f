"""The page of an execution: forks, signals, steps, and what is secret in them."""

import html
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from pgjobs.admin import timeline
from pgjobs.health.why_execution import why_execution
from pgjobs.models import Execution, Job, Message, OperatorAction
from pgjobs.workflows import verbs
from pgjobs.workflows.approvals import decide
from tests.faces.pages import address, as_seen, person, said, text_of
from tests.faces.rows import make_worker
from tests.workflows.rows import approval, execution, gather, job, status, step, user, wait

pytestmark = pytest.mark.django_db


def history() -> Execution:
    made = execution("failed")
    step(made, 0, output={"cause": "disk full", "token": "tok-5566"})
    step(made, 1, error={"type": "ValueError", "message": "password=tok-5566"})
    return made


def fork(client: Client, of: Execution, **data: Any) -> Any:
    given = {"expected": f"{of.status}:{of.attempt_count}", "from_ordinal": "1", "reason": "INC-221"}
    return client.post(address("execution_fork", of.pk), given | data)


def test_before_a_fork_it_says_what_is_kept_and_what_runs_again() -> None:
    made = history()
    client = person("ann", "fork_execution")
    assert f"{address('execution_fork', made.pk)}?from=1" in text_of(
        client, address("execution_change", made.pk)
    )

    text = text_of(client, f"{address('execution_fork', made.pk)}?from=1")

    kept, again = text.split("<h2>Runs again</h2>")
    assert "step0#1" in kept and "step1#1" not in kept
    assert "step1#1" in again
    assert Execution.objects.count() == 1


def test_a_fork_is_made_recorded_and_shown() -> None:
    made = history()
    response = fork(person("ann", "fork_execution"), made)

    new = Execution.objects.exclude(pk=made.pk).get()
    assert response["Location"] == address("execution_change", new.pk)
    assert (new.steps.count(), status(made)) == (1, "failed")
    recorded = OperatorAction.objects.get()
    assert (recorded.verb, recorded.actor, recorded.via, recorded.reason) == (
        "fork",
        "ann",
        "admin",
        "INC-221",
    )
    assert str(made.pk) in text_of(person("bob"), address("execution_change", new.pk))


def test_a_fork_that_is_to_cancel_its_source_does_both_or_nothing() -> None:
    made = execution()
    step(made, 0)
    both = {"cancel_source": "1", "from_ordinal": "0"}
    refused = fork(person("bob", "fork_execution"), made, **both)

    assert (refused.status_code, status(made), Execution.objects.count()) == (403, "waiting", 1)
    recorded = OperatorAction.objects.get()
    assert (recorded.verb, recorded.refused) == ("cancel", 1)
    assert recorded.details["missing_permission"] == "pgjobs.cancel_execution"

    ann = person("ann", "fork_execution", "cancel_execution")
    assert 'name="cancel_source"' in text_of(ann, address("execution_fork", made.pk))
    assert "and cancelled" in said(fork(ann, made, **both))
    assert (status(made), Execution.objects.count()) == ("cancelled", 2)
    assert list(OperatorAction.objects.order_by("pk").values_list("verb", "done"))[1:] == [
        ("cancel", 1),
        ("fork", 1),
    ]

    ended = history()
    assert 'name="cancel_source"' not in text_of(ann, address("execution_fork", ended.pk))
    assert "cannot be cancelled: it is failed" in said(fork(ann, ended, **both))
    assert (Execution.objects.count(), OperatorAction.objects.latest("pk").done) == (3, 0)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"reason": ""}, "reason"),
        ({"from_ordinal": "77"}, "Nothing was done"),
        ({"from_ordinal": "-1"}, "from_ordinal"),
        ({"expected": "waiting:9"}, "when you looked"),
    ],
)
def test_a_fork_that_cannot_be_is_told(data: dict[str, str], told: str) -> None:
    response = fork(person("ann", "fork_execution"), history(), **data)

    assert told in said(response)
    assert Execution.objects.count() == 1


def test_a_signal_is_sent_with_its_payload() -> None:
    made = execution()
    client = person("ann", "signal_execution")
    data = {"name": "paid", "payload": '{"order": 9007199254740993}', **as_seen(made)}
    response = client.post(address("execution_signal", made.pk), data)

    assert Message.objects.get().payload == {"order": 2**53 + 1}
    assert "'paid' was sent" in said(response)
    assert OperatorAction.objects.get().via == "admin"


@pytest.mark.parametrize("payload", ["{", "NaN\x00"])
def test_a_payload_that_is_no_json_is_kept_and_told(payload: str) -> None:
    made = execution()
    response = person("ann", "signal_execution").post(
        address("execution_signal", made.pk), {"name": "paid", "payload": payload, **as_seen(made)}
    )

    assert "Nothing was sent" in response.content.decode()
    assert Message.objects.count() == 0


def test_secrets_of_steps_are_not_shown() -> None:
    made = history()
    client = person("ann")
    page = address("execution_change", made.pk)

    for url in (page, f"{page}?step=step0%231", f"{page}?step=step1%231"):
        text = text_of(client, url)
        assert "tok-5566" not in text, url
    assert "disk full" in text_of(client, f"{page}?step=step0%231")


@pytest.mark.parametrize("query", ["?step=none", "?step=%00", "?from=x", "?from=99999999999999", "?failed=1"])
def test_any_address_of_the_page_opens(query: str) -> None:
    text_of(person("ann"), address("execution_change", history().pk) + query)


def test_the_timeline_goes_on_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST", 2)
    made = execution()
    for ordinal in range(5):
        step(made, ordinal)
    client = person("ann")
    page = address("execution_change", made.pk)

    assert "?from=2" in text_of(client, page) and "step2#1" not in text_of(client, page)
    later = text_of(client, f"{page}?from=2")
    assert "step2#1" in later and "step1#1" not in later and "?from=4" in later


def test_what_is_awaited_is_linked() -> None:
    made, child = execution(), execution()
    awaited = job()
    gather(made, [awaited.pk])
    wait(made, "child", target_id=child.pk)
    text = text_of(person("ann"), address("execution_change", made.pk))

    assert address("job_change", awaited.pk) in text
    assert address("execution_change", child.pk) in text
    assert f"workflow {made.pk}" in text_of(person("bob"), address("job_change", awaited.pk))


def test_the_page_says_why_it_does_not_go_on_as_the_command_does() -> None:
    asked = approval(permission="auth.add_user")
    text = html.unescape(text_of(person("ann"), address("execution_change", asked.execution_id)))
    found = why_execution(asked.execution_id)

    assert found is not None and found.reason is not None
    assert "for a decision on 'apply fix', by permission auth.add_user" in found.reason.sentence
    assert "<strong>It has waited" in text and "by permission auth.add_user." in text
    assert found.cure in text and f'href="{address("wait_change", asked.pk)}">open</a>' in text
    assert "No live worker serves" in text
    assert "Why does it not go on?" not in text_of(person("bob"), address("execution_change", history().pk))


def test_what_people_did_has_their_decisions() -> None:
    asked = approval(permission="auth.add_user")
    other = approval(permission="auth.add_user")
    ann, bob = user("ann", "auth.add_user"), user("bob")
    decide(asked.pk, approved=False, actor=bob, reason="mine")
    decide(asked.pk, approved=True, actor=ann, reason="I read <the> patch", via="admin")
    decide(other.pk, approved=False, actor=ann, reason="elsewhere")
    verbs.pause([asked.execution_id], actor="cid", reason="deploy")
    text = html.unescape(text_of(person("eve"), address("execution_change", asked.execution_id)))
    done = text[text.index("What people did") :]

    assert f"ann: approve approval {asked.pk}, step approval#0, done 1: I read <the> patch" in done
    assert f"bob: reject approval {asked.pk}, step approval#0, refused 1 (bob may not decide this" in done
    assert (
        done.index("cid: pause workflow execution") < done.index("ann: approve") < done.index("bob: reject")
    )
    assert "elsewhere" not in done


def test_each_bar_has_words_and_no_style() -> None:
    made = history()
    wait(made, "sleep", ordinal=2, due_in=60)
    text = text_of(person("ann"), address("execution_change", made.pk))

    assert text.count('class="pgjobs-timebar"') == 3
    assert "<title>step1#1: failed" in text and "pgjobs-bad" in text and "pgjobs-wait" in text
    assert " style=" not in text


def test_what_no_worker_knows_leads_to_its_own_list() -> None:
    make_worker(handlers=["jobsapp.ok"])
    due = {"available_at": Now() - timedelta(minutes=2)}
    Job.objects.create(job_type="gone.type", **due)
    Execution.objects.create(workflow_name="gone.flow", **due)
    text = html.unescape(text_of(person("ann"), address("overview_changelist")))

    verdict = text[text.index('data-pgjobs-region="verdict"') : text.index('data-pgjobs-region="cards"')]
    assert f"{address('job_changelist')}?status=pending&queue=default&job_type=gone.type" in verdict
    assert f"{address('execution_changelist')}?status=enqueued&workflow_name=gone.flow" in verdict
