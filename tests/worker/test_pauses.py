"""A paused queue under real workers: what runs is finished, nothing starts, and the end comes by itself."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from pgjobs.models import QueuePause
from pgjobs.queue.pauses import pause, paused
from tests.jobsapp.jobs import effect, hold
from tests.support.waiting import wait_until
from tests.worker.conftest import Gate, Spawn
from tests.worker.observation import database_says, deeds, row, wait_ended, wait_for_deed

pytestmark = pytest.mark.workers


def test_pause_finish_and_go_on_by_time(spawn: Spawn, gate: Callable[[str], Gate]) -> None:
    spawn(concurrency=2)
    door = gate("door")
    running = hold.using(queue="billing").enqueue(key="running", gate=str(door))
    wait_for_deed("running:start")

    until = pause("billing", actor="ann", reason="migration", until=timedelta(seconds=4)).until
    held = effect.using(queue="billing").enqueue(key="held")
    other = effect.enqueue(key="other")
    wait_for_deed("other")
    door.open()
    wait_ended([running, other])
    polled = "(SELECT min(last_poll_at) FROM pgjobs_worker) > %s"
    wait_until(lambda: database_says(polled, row(other.pk).completed_at), 10, "another poll")
    assert row(held.pk).status == "pending" and len(paused()) == 1

    done = wait_ended([held])[held.pk]
    assert until is not None and done.started_at > until and len(deeds("held")) == 1
    assert QueuePause.objects.count() == 1 and paused() == []


def test_draining_leaves_what_is_paused(spawn: Spawn) -> None:
    pause("billing", actor="ann", reason="migration")
    held = effect.using(queue="billing").enqueue(key="held")
    other = effect.enqueue(key="other")

    drain = spawn("--drain")
    assert drain.wait(60) == 0
    assert "\nThe drain is over. Left behind: 1 in paused queues or of paused types. See: " in drain.output()

    assert (row(held.pk).status, row(other.pk).status) == ("pending", "succeeded")
