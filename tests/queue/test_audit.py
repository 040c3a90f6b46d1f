"""The record of what operators did: by whom and through what, and never changed afterwards."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, ProgrammingError, transaction
from django.db.models.functions import Now

from pgjobs.exceptions import AppendOnly, InvalidOption
from pgjobs.queue import audit
from pgjobs.queue.audit import Actor, record, record_denied
from pgjobs.queue.models import OperatorAction
from pgjobs.worker import clock
from pgjobs.worker.pruner import Pruner
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def kept(**columns: Any) -> OperatorAction:
    """A row of some age, which only an insert can give it."""
    return OperatorAction.objects.create(
        actor="ann", via="api", verb="retry", target_kind="job", target_ids=[1], **columns
    )


def test_a_row_says_who_what_and_why() -> None:
    action = record(
        "retry",
        target_kind="job",
        target_ids=[7, 8, 9],
        actor=Actor("ann", "3", via="admin"),
        reason="fixed",
        done=1,
        skipped=2,
        details={"queue": "billing"},
    )

    row = OperatorAction.objects.values().get()
    assert row.pop("id") == action.pk and row.pop("at") is not None
    assert row == {
        "actor": "ann",
        "user_id": "3",
        "via": "admin",
        "verb": "retry",
        "target_kind": "job",
        "target_ids": [7, 8, 9],
        "target_count": 3,
        "reason": "fixed",
        "done": 1,
        "skipped": 2,
        "refused": 0,
        "details": {"queue": "billing"},
    }


def test_its_time_is_the_clock_of_the_database() -> None:
    action = kept()

    assert OperatorAction.objects.filter(pk=action.pk, at__lte=Now(), at__gt=Now() - timedelta(minutes=1))


def test_an_actor_is_a_text_a_user_or_an_actor() -> None:
    user = User.objects.create_user("eve")

    assert Actor.of("a script") == Actor("a script", None, "api")
    assert Actor.of(user, via="admin") == Actor("eve", str(user.pk), "admin")
    assert Actor.of(Actor("ann"), via="command") == Actor("ann", None, "command")
    assert f"{Actor('ann', '3')}" == "ann"
    with pytest.raises(InvalidOption, match="admin, command, api"):
        Actor("ann", via="telepathy")


def test_the_name_stays_when_the_user_is_gone() -> None:
    user = User.objects.create_user("eve")
    record("retry", target_kind="job", target_ids=[1], actor=user)
    pk = str(user.pk)
    user.delete()

    assert OperatorAction.objects.values_list("actor", "user_id").get() == ("eve", pk)


def test_many_targets_are_counted_and_the_first_hundred_named() -> None:
    action = record("cancel", target_kind="job", target_ids=range(1, 251), actor="ann", done=250)

    assert (len(action.target_ids), action.target_count) == (100, 250)


def test_text_that_cannot_be_stored_is_made_storable() -> None:
    record("retry", target_kind="job", target_ids=[1], actor="a\x00" + "é" * 300, reason="\ud800" * 9_000)

    row = OperatorAction.objects.get()
    assert row.actor.startswith("a�") and len(row.actor.encode()) <= 200
    assert len(row.reason.encode()) <= 2_000


def test_an_attempt_without_the_permission_is_a_row_too() -> None:
    record_denied("pause", target_kind="queue", target_ids=["billing"], actor="eve", permission="pgjobs.x")

    row = OperatorAction.objects.get()
    assert (row.done, row.refused, row.details) == (0, 1, {"missing_permission": "pgjobs.x"})


def test_an_unknown_kind_of_target_is_refused() -> None:
    with pytest.raises(InvalidOption, match="job, queue, type"):
        record("retry", target_kind="cat", target_ids=[1], actor="ann")


def test_models_and_querysets_refuse_to_change_a_row() -> None:
    action = kept()
    for change in (
        action.save,
        action.delete,
        OperatorAction.objects.all().delete,
        lambda: OperatorAction.objects.update(reason="better"),
    ):
        with pytest.raises(AppendOnly, match="AUDIT_DAYS"):
            change()


@pytest.mark.parametrize("change", ["UPDATE {} SET reason = 'better'", "DELETE FROM {}"])
def test_the_database_refuses_to_change_a_row(change: str) -> None:
    kept()
    refused = pytest.raises(DatabaseError, match="not changed or deleted")
    with refused, transaction.atomic(using=QUEUE), connection.cursor() as cursor:
        cursor.execute(change.format("pgjobs_operatoraction"))

    assert OperatorAction.objects.get().reason == ""


def test_retention_takes_the_old_and_shuts_the_door_again(settings: Any) -> None:
    settings.PGJOBS = {"AUDIT_DAYS": 30}
    kept(at=Now() - timedelta(days=31))
    young = kept(at=Now() - timedelta(days=29))

    assert audit.prune(using=QUEUE) == 1 and audit.prune(using=QUEUE) == 0
    assert [row.pk for row in OperatorAction.objects.all()] == [young.pk]
    with pytest.raises(DatabaseError, match="not changed"), transaction.atomic(using=QUEUE):
        OperatorAction.objects.all()._raw_delete(QUEUE)


def test_nothing_goes_when_the_audit_is_kept_for_ever(settings: Any) -> None:
    settings.PGJOBS = {"AUDIT_DAYS": None}
    kept(at=Now() - timedelta(days=9_999))

    assert audit.prune(using=QUEUE) == 0


def test_workers_prune_it(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PGJOBS = {"AUDIT_DAYS": 30}
    monkeypatch.setattr("pgjobs.worker.pruner._AUDIT_FIRST", 0.0)
    kept(at=Now() - timedelta(days=31))

    pruner = Pruner(using=QUEUE)
    pruner.run_if_due()

    assert not OperatorAction.objects.exists()


def test_an_audit_that_cannot_be_pruned_does_not_come_before_every_claim(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chore runs in the claim loop: what the database refuses there must not be tried in every turn."""
    settings.PGJOBS = {"AUDIT_DAYS": 30}
    monkeypatch.setattr("pgjobs.worker.pruner._AUDIT_FIRST", 0.0)
    pruner = Pruner(using=QUEUE)
    monkeypatch.undo()
    with pytest.raises(ProgrammingError), transaction.atomic(using=QUEUE), connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION pgjobs_prune_audit")
        pruner.run_if_due()

    assert pruner.due > clock.now() + 30


def test_the_actions_on_one_job_are_found_by_its_id() -> None:
    record("retry", target_kind="job", target_ids=[7, 8], actor="ann")
    record("retry", target_kind="job", target_ids=[78], actor="ann")

    found = OperatorAction.objects.filter(target_kind="job", target_ids__contains=[7])
    assert [row.target_ids for row in found] == [[7, 8]]
