"""A bulk operation outlives the worker that carries it."""

import signal
from collections import Counter

import pytest

from pgjobs.bulk.control import plan, start
from pgjobs.models import BulkOperation, Job, OperatorAction
from tests.bulk.conftest import Ended
from tests.support.waiting import wait_until
from tests.support.workers import Spawner

pytestmark = [pytest.mark.workers, pytest.mark.django_db(transaction=True)]

DEAD = {"status": "dead", "queue": "billing"}


def test_ten_thousand_dead_jobs_are_retried_past_the_death_of_the_carrier(
    ended: Ended, spawn_workers: Spawner
) -> None:
    ended(10_000)
    pk = plan("retry", DEAD, actor="ann", reason="INC-221", pace=3_000.0).pk
    start(pk, actor="ann")

    def operation() -> BulkOperation:
        return BulkOperation.objects.get(pk=pk)

    # Workers of another queue: they carry the operation and run none of its jobs.
    first = spawn_workers(queues="other")
    wait_until(lambda: operation().done >= 1_500, 30, lambda: f"progress of {operation().__dict__}")
    [child] = first.child_pids
    first.signal(signal.SIGKILL)
    first.signal(signal.SIGKILL, child)
    first.wait()
    left = operation()
    assert left.state == "running" and 1_500 <= left.done < 10_000

    second = spawn_workers(queues="other")
    wait_until(lambda: operation().state == "done", 40, lambda: f"the end of {operation().__dict__}")

    over = operation()
    assert (over.done, over.skipped, over.conflict) == (10_000, 0, 0), "none twice, none left out"
    assert over.carried_by in second.names and left.carried_by in first.names
    assert Counter(Job.objects.values_list("status", "max_attempts")) == {("pending", 2): 10_000}
    assert OperatorAction.objects.get(verb="bulk_retry").done == 10_000


def test_a_fault_of_an_operation_pauses_it_and_not_the_worker(ended: Ended, spawn_workers: Spawner) -> None:
    ended(3)
    pk = plan("retry", DEAD, actor="ann", reason="INC-221").pk
    start(pk, actor="ann")
    BulkOperation.objects.filter(pk=pk).update(options={"priority": "high"})

    spawn_workers(queues="other")
    wait_until(lambda: BulkOperation.objects.get(pk=pk).state == "paused", 20, "the pause")

    assert "priority" in BulkOperation.objects.get(pk=pk).note
