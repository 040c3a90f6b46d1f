"""Atomic steps whose transaction cannot be opened."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from pgjobs.exceptions import StepFailed
from pgjobs.models import Execution
from pgjobs.workflows.suspension import Stopped
from tests.workflows.blocks import deed, deeds
from tests.workflows.carrier import Carrier


@contextmanager
def server_away() -> Iterator[None]:
    """No new session comes about."""
    settings = connection.settings_dict
    before = dict(settings)
    settings["PORT"] = "1"
    try:
        connection.close()
        yield
    finally:
        settings.clear()
        settings.update(before)


@pytest.mark.parametrize("form", ["block", "function"])
def test_a_server_that_is_away_when_the_transaction_is_opened_costs_a_turn(
    carrier: Carrier, form: str
) -> None:
    """As one that goes away inside it: what has waited it out for as long as the lease was sure is no failed step."""
    raised: list[BaseException] = []

    def body(ctx: Any) -> None:
        try:
            with server_away() if not raised else nullcontext():
                if form == "function":
                    ctx.atomic("deed", deed, "done")
                else:
                    with ctx.atomic("deed"):
                        deed("done")
        except BaseException as error:
            raised.append(error)
            raise

    started = carrier.flow(body).start()
    holding = carrier.claim()
    assert holding is not None
    holding.good_until = 0.0
    carrier.start(holding).finish()

    started.refresh_from_db()
    assert started.status == "enqueued" and "broke off" in started.note and not started.steps.exists()
    assert [type(error) for error in raised] == [Stopped] and deeds() == []
    Execution.objects.update(available_at=Now())
    assert carrier.run(started).status == "succeeded" and deeds() == ["done"]


def test_an_error_of_the_database_when_the_transaction_is_opened_is_one_of_the_step(carrier: Carrier) -> None:
    """Whether by the block or by the function."""
    told = []

    def refuse(refused: bool) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {'nowhere' if refused else 'DEFAULT'}")

    def block(ctx: Any) -> None:
        with ctx.atomic("block"):
            deed("no")

    def body(ctx: Any) -> None:
        for call in (lambda: ctx.atomic("function", deed, "no"), lambda: block(ctx)):
            refuse(True)
            try:
                call()
            except StepFailed as error:
                told.append(error.error_type)
            refuse(False)

    assert carrier.run(carrier.flow(body).start()).status == "succeeded"
    assert told == ["ProgrammingError"] * 2 and deeds() == []
