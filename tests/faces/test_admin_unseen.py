"""A stale tab cannot act: a form that does not say what the person saw is refused, whichever verb it asks for."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from django.contrib import admin

from pgjobs.bulk import control
from pgjobs.models import (
    Acknowledgement,
    BulkOperation,
    Execution,
    Job,
    Message,
    OperatorAction,
    QueuePause,
    Wait,
)
from pgjobs.queue import pauses
from pgjobs.queue.standing import mark, standing
from tests.faces.pages import address, as_seen, person, said
from tests.faces.rows import make_job
from tests.workflows.rows import approval, execution

pytestmark = pytest.mark.django_db

CHANGE_NOTHING = {"job_payload", "job_reveal", "errorgroup_plan", "operatoraction_export"}
STOCK = ("_changelist", "_change", "_add", "_delete", "_history", "_newer")
LATER = "2100-01-01T00:00:00Z"


class Door(NamedTuple):
    """One verb with all that its form carries, and the part that says what was seen."""

    name: str
    url: str
    data: dict[str, Any]
    seen: dict[str, Any]


def of_rows(model: str, verb: str, row: Any, **data: Any) -> Door:
    state = {"expected": f"{row.status}:{row.attempt_count}"}
    return Door(f"{model}_{verb}", address(f"{model}_{verb}", row.pk), {"reason": "INC-1", **data}, state)


def jobs() -> Iterator[Door]:
    made: dict[str, Callable[[], Job]] = {
        "retry": partial(make_job, "dead"),
        "run_now": partial(make_job, "pending", available_at=LATER),
        "cancel": partial(make_job, "pending"),
        "release": partial(make_job, "running"),
        "discard": partial(make_job, "dead"),
        "restore": partial(make_job, "dead", discarded_at=LATER),
    }
    for verb, make in made.items():
        job, name = make(), f"job_{verb}_ticked"
        yield Door(name, address(name), {"_selected_action": [job.pk]}, as_seen(job))
        yield of_rows("job", verb, make())
    yield of_rows("job", "options", make_job("dead"))
    edited = make_job("dead", payload={"value": 1})
    yield of_rows("job", "options", edited, edit="1", payload='{"value": 2}')
    newest = make_job("failed", queue="bulk")
    plan = address("job_bulk") + "?verb=retry&status=failed&queue=bulk"
    yield Door("job_bulk", plan, {"reason": "INC-1"}, {"upper_id": newest.pk})


def flows() -> Iterator[Door]:
    for verb, status in (
        ("resume", "paused"),
        ("retry", "failed"),
        ("pause", "waiting"),
        ("cancel", "waiting"),
    ):
        yield of_rows("execution", verb, execution(status))
    yield of_rows("execution", "fork", execution("failed"), from_ordinal="0")
    yield of_rows("execution", "signal", execution("waiting"), name="paid")
    asked = approval(context_hash="a" * 64)
    url = address("wait_decide", asked.pk)
    yield Door("wait_decide", url, {"decision": "approve"}, {"shown_hash": asked.context_hash})


def others() -> Iterator[Door]:
    make_job("dead", fingerprint="f00d")
    for verb in ("acknowledge", "mute", "unacknowledge"):
        known = mark(standing().get("f00d"))
        data = {"fingerprint": "f00d", "reason": "known", "hours": "2"}
        yield Door(f"errorgroup_{verb}", address(f"errorgroup_{verb}"), data, {"seen": f"{known}:f00d"})
    pausing = {"name": "default", "kind": "queue", "reason": "INC-1"}
    yield Door("queue_pause", address("queue_pause"), pausing, {"expected": ""})
    shown = f"queue:{pauses.mark(QueuePause.objects.get())}:default"
    yield Door("queue_pause", address("queue_pause"), pausing, {"shown": ["", shown]})
    held = pauses.mark(QueuePause.objects.get())
    yield Door("queue_resume", address("queue_resume"), pausing, {"expected": held})
    for verb, state in (
        ("start", "previewed"),
        ("pause", "running"),
        ("resume", "paused"),
        ("release_canary", "waiting"),
        ("stop", "running"),
    ):
        operation = control.plan("retry", {"status": "dead"}, actor="ben", reason="INC-2", canary=1)
        BulkOperation.objects.filter(pk=operation.pk).update(state=state)
        url = address(f"bulkoperation_{verb}", operation.pk)
        yield Door(f"bulkoperation_{verb}", url, {"reason": "INC-1"}, {"expected": state})


def actions() -> Iterator[Door]:
    for model, states in (
        ("job", {"retry": "dead", "cancel": "pending", "run_now": "pending", "discard": "dead"}),
        ("deadjob", {"retry": "dead", "discard": "dead", "restore": "dead"}),
        ("execution", {"resume": "paused", "retry": "failed", "cancel": "waiting"}),
    ):
        for verb, status in states.items():
            columns = {"discarded_at": LATER} if verb == "restore" else {}
            columns |= {"available_at": LATER} if verb == "run_now" else {}
            row = execution(status) if model == "execution" else make_job(status, **columns)
            data = {
                "action": f"{verb}_selected",
                "index": "0",
                "_selected_action": [row.pk],
                "reason": "INC-1",
            }
            yield Door(f"{model} {verb}_selected", address(f"{model}_changelist"), data, as_seen(row))


def every_verb() -> set[str]:
    """The addresses and actions of the app's pages, but for those that only show."""
    found = set()
    for model, page in admin.site._registry.items():
        if model._meta.app_label == "pgjobs":
            names = [str(each.name).removeprefix("pgjobs_") for each in page.get_urls() if each.name]
            found |= {name for name in names if not name.endswith(STOCK) and name not in CHANGE_NOTHING}
            found |= {f"{model._meta.model_name} {action}" for action in page.actions or ()}
    return found


def everything() -> list[Any]:
    """All that a verb could have changed."""
    models = (Job, Execution, Wait, Message, QueuePause, Acknowledgement, BulkOperation, OperatorAction)
    return [list(model.objects.order_by("pk").values()) for model in models]


def test_no_verb_acts_for_a_form_that_does_not_say_what_was_seen() -> None:
    client, tried = person("root", is_superuser=True), set()

    for doors in (jobs, flows, others, actions):
        for door in doors():
            before, [field] = everything(), door.seen
            stale = client.post(door.url, door.data)
            told = said(stale).split(" | ")[-1]

            assert stale.status_code == 302, door.name
            assert re.match(r"Nothing was done: the form says nothing \((.*)\) of how ", told), door.name
            assert field in told[: told.index(")")], (door.name, told)
            assert "stood when you looked" in told and "Load the page again" in told, door.name
            assert everything() == before, door.name

            fresh = client.post(door.url, {**door.data, **door.seen})
            assert fresh.status_code == 302, door.name
            assert OperatorAction.objects.latest("pk").done, (door.name, said(fresh))
            tried.add(door.name)

    assert tried == every_verb()


@pytest.mark.parametrize("given", ["dead", "dead:", ":1", "dead:x", "dead:-1", "dead:99999999999999999999"])
def test_what_makes_no_sense_of_what_was_seen_is_named_and_refused(given: str) -> None:
    job = make_job("dead")

    answer = person("ann", "retry_job").post(address("job_retry", job.pk), {"expected": given})

    assert f"the form says {given!r} (expected or seen) of how job {job.pk} stood" in said(answer)
    assert Job.objects.get().status == "dead"


def test_one_tick_that_says_nothing_holds_all_of_them() -> None:
    jobs = [make_job("dead") for _ in range(8)]
    data = {"_selected_action": [job.pk for job in jobs], **as_seen(*jobs[:1])}

    answer = person("ann", "retry_job").post(address("job_retry_ticked"), data)

    assert f"of how job {', '.join(str(job.pk) for job in jobs[1:6])} and 2 more stood" in said(answer)
    assert {job.status for job in Job.objects.all()} == {"dead"}


def test_where_pauses_cannot_be_read_no_form_pretends_that_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_job(queue="reports")
    client = person("ann", "pause_queue")
    assert 'name="expected" value=""' in client.get(address("queue_change", "reports")).content.decode()
    monkeypatch.setattr("pgjobs.admin.queuerows._CLOCK", "SELECT 1 / 0")

    for page in (address("queue_change", "reports") + "?range=6h", address("queue_changelist")):
        text = client.get(page).content.decode()
        assert "division by zero" in text and 'name="expected"' not in text and 'name="shown"' not in text, (
            page
        )
