"""Claiming on from where the last claim ended: nothing twice, nothing left, and the better row not late for long."""

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from pgjobs.leases import lanes
from pgjobs.leases.claim import _claim_sql
from pgjobs.leases.lanes import Position
from pgjobs.queue.claiming import _COLUMNS
from pgjobs.queue.models import Job
from tests.leases.factories import KIND, claim_ids, pending

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def slow_look_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test does makes a claim look at the whole."""
    monkeypatch.setattr(lanes, "LOOK_BACK_SECONDS", 3600.0)


def test_a_flood_is_claimed_in_order_without_gap_or_repetition() -> None:
    ids = pending(25)
    position = Position()

    claims = [claim_ids(10, position=position) for _ in range(4)]

    assert claims == [ids[:10], ids[10:20], ids[20:], []]


def test_several_lanes_are_drained_in_the_order_of_priority() -> None:
    low = pending(7, priority=200)
    high = pending(7, priority=10, queue="other")
    position = Position()

    claims = [claim_ids(5, position=position) for _ in range(3)]

    assert [pk for claim in claims for pk in claim] == [*high, *low][:15]
    assert [len(claim) for claim in claims] == [5, 5, 4]


def test_in_a_flood_a_better_row_waits_for_the_next_look_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = pending(30)
    position = Position()
    assert claim_ids(10, position=position) == ids[:10]
    [better] = pending(priority=1)
    [earlier] = pending(available_at=Now() - timedelta(hours=1))

    assert claim_ids(10, position=position) == ids[10:20]
    monkeypatch.setattr(lanes, "LOOK_BACK_SECONDS", 0.0)
    assert claim_ids(3, position=position) == [better, earlier, ids[20]]


def test_when_the_flood_ends_the_whole_is_looked_at_in_the_same_call() -> None:
    ids = pending(10)
    position = Position()
    assert claim_ids(8, position=position) == ids[:8]
    [better] = pending(priority=1)

    assert claim_ids(8, position=position) == [*ids[8:], better]


def test_suspects_are_claimed_from_the_start_whatever_the_position() -> None:
    pending(10)
    position = Position()
    claim_ids(5, position=position)
    [suspect] = pending(crash_count=1, available_at=Now() - timedelta(hours=1))

    assert claim_ids(1, suspects=True, position=position) == [suspect]


@pytest.mark.django_db(transaction=True)
def test_behind_a_held_snapshot_a_claim_does_not_wade_through_what_was_claimed() -> None:
    """Without the position the scan reads an entry for every row claimed before."""
    pending(4_000)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT count(*) FROM pgjobs_job")
        position = Position()
        for _ in range(30):
            assert len(claim_ids(100, position=position)) == 100

        with connection.cursor() as cursor:
            cursor.execute("ANALYZE pgjobs_job")  # whatever autovacuum found a moment ago
        from_start = buffers("all", {})
        from_position = buffers("known", position.params())
    finally:
        other.close()
    assert Job.objects.filter(status="pending").count() == 1_000
    assert from_position * 2 < from_start


def buffers(lanes: str, params: dict[str, object]) -> int:
    """Buffers that finding 10 rows costs, without claiming them."""
    sql = _claim_sql(Job, lanes, _COLUMNS, "default").rpartition("UPDATE")[0]
    finding = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql} SELECT * FROM due"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(finding, {"kinds": [KIND], "queues": [], "limit": 10, **params})
        told = cursor.fetchone()[0]
    plan = (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
