"""Causes that a person knows about: acknowledged until they come back on another version, muted until a time."""

import datetime as dt
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from pgjobs.exceptions import InvalidOption, NotStorable
from pgjobs.models import Acknowledgement, OperatorAction
from pgjobs.queue.acknowledging import acknowledge, forget, mute, unacknowledge
from pgjobs.queue.activity import Cause
from pgjobs.queue.standing import mark, standing
from pgjobs.worker.reaper import Reaper
from tests.health.seeds import job, run, worker
from tests.leases.sessions import sessions, transaction_open
from tests.support.own_database import QUEUE

pytestmark = pytest.mark.django_db

WHY: dict[str, Any] = {"actor": "ben", "reason": "the bank is down"}


def dead(fingerprint: str = "f1", **columns: Any) -> int:
    return job("dead", fingerprint=fingerprint, completed_by=columns.pop("by", "w-1"), **columns)


def earlier(seconds: float = 60) -> None:
    """As if all that was acknowledged had been so for a while."""
    Acknowledgement.objects.update(since=F("since") - timedelta(seconds=seconds))


def states() -> dict[str, str]:
    return {name: each.state for name, each in standing().items()}


def test_a_cause_is_acknowledged_and_opened_again() -> None:
    dead()
    worker(version="v140")
    [done] = acknowledge(["f1"], **WHY, link="https://tickets.example/7")

    assert (done.done, done.state, done.result) == (True, "acknowledged", "done")
    known = standing()["f1"]
    assert (known.by, known.note, known.link, known.until) == (
        "ben",
        "the bank is down",
        "https://tickets.example/7",
        None,
    )
    assert Acknowledgement.objects.get().versions == ["v140"]

    [opened] = unacknowledge(["f1"], actor="eva", reason="too early")
    assert opened.done and opened.message.startswith("open again; it was acknowledged by ben since")
    assert states() == {} and not unacknowledge(["f1"], actor="eva")[0].done


def test_each_verb_leaves_one_row_in_the_record() -> None:
    dead("f1"), dead("f2")
    acknowledge(["f2", "f1", "gone"], **WHY, link="https://tickets.example/7")
    mute(["f1"], until=timedelta(hours=1), **WHY)
    unacknowledge(["f1", "f2"], actor="ben")

    acknowledged, muted, opened = OperatorAction.objects.order_by("pk")
    assert (acknowledged.target_kind, acknowledged.target_ids) == ("error", ["f1", "f2", "gone"])
    assert (acknowledged.done, acknowledged.skipped, acknowledged.reason) == (2, 1, WHY["reason"])
    assert acknowledged.details["link"] == "https://tickets.example/7"
    assert "no dead or failed job" in acknowledged.details["outcomes"]["gone"]
    assert muted.verb == "mute" and "until" in muted.details and opened.done == 2


def test_it_opens_by_itself_when_it_comes_back_on_another_version() -> None:
    worker("w-1", version="v140")
    dead()
    acknowledge(["f1"], **WHY)
    earlier()
    dead(ago=5)
    assert states() == {"f1": "acknowledged"}, "the version is the one that was there"

    worker("w-2", version="v141")
    assert states() == {"f1": "acknowledged"}, "nothing has failed there yet"
    dead(by="w-2", ago=3)

    back = standing()["f1"]
    assert (back.state, back.version, back.holds, mark(back)) == ("open", "v141", False, "")
    assert (back.job_type, back.queue) == ("jobsapp.ok", "default") and back.back_at is not None
    assert acknowledge(["f1"], **WHY)[0].done and states() == {"f1": "acknowledged"}


@pytest.mark.parametrize("how", ["an old job that was retried", "a crash"])
def test_it_is_seen_to_come_back_however_it_does(how: str) -> None:
    worker("w-1", version="v140")
    old = dead(ago=500)
    for _ in range(15):
        dead(ago=400)
    acknowledge(["f1"], **WHY)
    earlier()
    worker("w-2", version="v141")
    if how == "a crash":
        dead(by=None, errors='[{"kind": "lost", "worker": "w-2"}]', ago=1)
    else:
        run("UPDATE pgjobs_job SET completed_at = now(), completed_by = 'w-2' WHERE id = %s", old)

    assert states() == {"f1": "open"}


def test_without_versions_it_stays_and_says_so() -> None:
    worker("w-1")
    dead()
    [outcome] = acknowledge(["f1"], **WHY)
    earlier()
    dead(ago=1)

    assert "CODE_VERSION" in outcome.message and states() == {"f1": "acknowledged"}


def test_time_alone_ends_a_mute_and_no_version_does() -> None:
    worker("w-1", version="v140")
    dead()
    [outcome] = mute(["f1"], until=timedelta(minutes=30), **WHY)
    assert outcome.state == "muted" and outcome.until is not None
    earlier()
    worker("w-2", version="v141")
    dead(by="w-2", ago=1)
    assert states() == {"f1": "muted"}

    Acknowledgement.objects.update(until=Now() - timedelta(seconds=1))
    assert states() == {} and not unacknowledge(["f1"], actor="ben")[0].done
    assert not Acknowledgement.objects.exists(), "what is over is cleared away"


def test_whoever_saw_something_else_does_nothing_and_is_told() -> None:
    dead()
    acknowledge(["f1"], **WHY, expected={"f1": ""})
    seen = mark(standing()["f1"])

    [late] = acknowledge(["f1"], actor="eva", reason="mine", expected={"f1": ""})
    assert late.conflict and "it was open when you looked; it is acknowledged by ben" in late.message
    mute(["f1"], until=timedelta(hours=1), actor="eva", reason="longer", expected={"f1": seen})
    [stale] = unacknowledge(["f1"], actor="ben", expected={"f1": seen})
    assert stale.result == "conflict" and "otherwise when you looked; it is muted by eva" in stale.message
    assert stale.state == "muted"
    unacknowledge(["f1"], actor="eva")
    [gone] = mute(["f1"], until=timedelta(hours=1), **WHY, expected={"f1": seen})
    assert "it was acknowledged or muted when you looked; it is open" in gone.message
    assert OperatorAction.objects.filter(refused=1).count() == 3


def test_whoever_saw_it_acknowledged_is_told_that_it_came_back() -> None:
    dead()
    acknowledge(["f1"], **WHY)
    seen = mark(standing()["f1"])
    earlier()
    worker("w-2", version="v141")
    dead(by="w-2")

    [stale] = unacknowledge(["f1"], actor="ben", expected={"f1": seen})
    assert stale.conflict and "came back on v141 and is open" in stale.message


@pytest.mark.django_db(transaction=True)
def test_of_two_at_the_same_time_the_second_sees_what_the_first_did() -> None:
    dead()
    with sessions("ana", "ben") as [ana, ben]:
        first = transaction_open(ana, lambda: acknowledge(["f1"], actor="ana", reason="mine"))
        assert standing() == {}, "readers do not wait"
        second = ben.start(acknowledge, ["f1"], **WHY, expected={"f1": ""})
        ben.wait_blocked()
        first.finish()
        [outcome] = second.result(timeout=30)

    assert outcome.conflict and "acknowledged by ana" in outcome.message


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"reason": "  "}, "reason"),
        ({"link": "javascript:alert(1)"}, "link"),
        ({"link": "https://user:pass@host/"}, "link"),
        ({"link": "https://[/"}, "link"),
        ({"link": "https://host/" + "x" * 500}, "link"),
        ({"fingerprints": []}, "fingerprints"),
        ({"fingerprints": "f1"}, "fingerprints"),
        ({"fingerprints": [""]}, "fingerprint"),
        ({"fingerprints": ["x" * 41]}, "fingerprint"),
        ({"until": timedelta()}, "until"),
        ({"until": dt.datetime(2030, 1, 1)}, "until"),
        ({"until": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, "until"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(options: dict[str, Any], name: str) -> None:
    dead()
    given = {"fingerprints": ["f1"], **WHY, **options}
    fingerprints = given.pop("fingerprints")
    with pytest.raises(InvalidOption, match=f"^{name}="):
        (mute if "until" in options else acknowledge)(fingerprints, **given)

    assert not Acknowledgement.objects.exists() and not OperatorAction.objects.exists()


def test_a_fingerprint_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(NotStorable):
        acknowledge(["a\x00"], **WHY)


def test_only_the_latest_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.queue.standing.MOST", 1)
    dead("f1"), dead("f2")
    acknowledge(["f1"], **WHY)
    earlier()
    acknowledge(["f2"], **WHY)

    assert states() == {"f2": "acknowledged"}
    assert standing(["f1"], using=QUEUE)["f1"].holds


def test_what_is_over_or_of_causes_that_are_no_more_is_forgotten() -> None:
    for name in ("there", "gone", "met", "muted", "silent"):
        dead(name)
    acknowledge(["there", "gone", "met"], **WHY)
    mute(["muted", "silent"], until=timedelta(days=60), **WHY)
    Cause.objects.create(fingerprint="met")
    run("DELETE FROM pgjobs_job WHERE fingerprint <> 'there'")
    assert forget(using=QUEUE) == 0  # as long as it is fresh, the error may come again

    earlier(31 * 86_400)
    Acknowledgement.objects.filter(pk="muted").update(until=Now())
    Reaper(5, using=QUEUE).run()

    assert sorted(Acknowledgement.objects.values_list("pk", flat=True)) == ["met", "silent", "there"]
