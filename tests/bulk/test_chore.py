"""The chore of carrying bulk operations: it comes before the claims, and must not keep them from their turn."""

import pytest
from django.db import OperationalError, transaction

from pgjobs.bulk.control import plan, start
from pgjobs.bulk.models import BulkOperation
from pgjobs.worker import clock
from pgjobs.worker.bulks import BulkCarrier
from tests.bulk.conftest import Ended
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def started(**terms: float) -> int:
    pk = plan("retry", {"status": "dead"}, actor="ann", reason="INC-221", **terms).pk  # type: ignore[arg-type]
    assert start(pk, actor="ann").done
    return pk


def test_a_slow_operation_hides_no_other(ended: Ended) -> None:
    ended(5)
    carrier = BulkCarrier("test", using=QUEUE)
    slow = started(pace=0.001)
    carrier.looked(running=True)
    carrier.run_if_due()
    assert BulkOperation.objects.get(pk=slow).done == 1
    assert clock.now() < carrier.due < clock.now() + 15, "others may begin meanwhile"


def test_many_slow_operations_hide_no_newer_one(ended: Ended) -> None:
    jobs = ended(60)
    slow = [started(pace=0.001) for _ in range(45)]
    newest = started()
    carrier = BulkCarrier("test", using=QUEUE)
    carrier.looked(running=True)
    for _ in range(4):
        carrier._due = 0.0
        carrier.run_if_due()

    carried = dict(BulkOperation.objects.values_list("pk", "done"))
    assert {carried[pk] for pk in slow} == {1} and carried[newest] == len(jobs) - len(slow)
    assert BulkOperation.objects.get(pk=newest).state == "done"
    assert carrier.due > clock.now() + 5, "what has had its batch waits for its pace"


def test_a_batch_that_takes_too_long_is_held_and_the_claims_go_on(ended: Ended) -> None:
    """As under a role's statement_timeout: the next try would end the same way."""
    ended(5)
    pk = started()
    carrier = BulkCarrier("test", using=QUEUE)
    carrier.looked(running=True)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pg_temp.drag() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(10); RETURN NEW; END $$; CREATE TRIGGER drag BEFORE UPDATE ON pgjobs_job "
            "FOR EACH ROW EXECUTE FUNCTION pg_temp.drag(); SET LOCAL statement_timeout = '100ms'"
        )
        carrier.run_if_due()
    operation = BulkOperation.objects.get(pk=pk)
    assert (operation.state, operation.done) == ("paused", 0) and "statement timeout" in operation.note


def test_what_an_outage_stops_is_tried_again_after_the_claims(ended: Ended) -> None:
    ended(5)
    started()
    carrier = BulkCarrier("test", using=QUEUE)
    carrier.looked(running=True)
    with pytest.raises(OperationalError), transaction.atomic(using=QUEUE), connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pg_temp.full() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'disk full'; END $$; "
            "CREATE TRIGGER full_disk BEFORE UPDATE ON pgjobs_job FOR EACH ROW EXECUTE FUNCTION pg_temp.full()"
        )
        carrier.run_if_due()
    assert carrier.due > clock.now()
