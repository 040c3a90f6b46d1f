"""Situations that a real queue gets into, as rows: what the examination must say of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.health.seeds import approval, bulk, execution, job, known, minute, pause, worker
from tests.health.seeds import run as run

Seed = Callable[[], None]


@dataclass(frozen=True)
class Situation:
    """What is seeded, and the codes (with queue) that must be told, no other."""

    name: str
    seed: Seed
    codes: tuple[tuple[str, str], ...] = ()
    since_ago: float | None = None
    """Of the first problem."""
    says: tuple[str, ...] = ()
    """In the sentence of the first problem."""

    def __str__(self) -> str:
        return self.name


def _seeds(*calls: Seed) -> Seed:
    def seed() -> None:
        for call in calls:
            call()

    return seed


SITUATIONS = (
    Situation("empty", lambda: None),
    Situation("idle", lambda: worker()),
    Situation("busy and well", _seeds(worker, job, lambda: minute(60, done=5))),
    Situation(
        "nobody serves the queue",
        _seeds(
            lambda: worker("w-7", queues='["billing"]', beat=4000, poll=4000),
            lambda: worker("w-1", queues='["email"]'),
            *[lambda: job(queue="billing", ago=200)] * 3,
        ),
        (("NO_WORKER", "billing"),),
        200,
        ("'billing'", "3 jobs due", "3 min 20 s", "w-7"),
    ),
    Situation(
        "nobody ever served it",
        _seeds(lambda: worker(queues='["billing"]'), lambda: job(queue="biling", ago=30)),
        (("NO_WORKER", "biling"),),
        30,
        ("spelled right",),
    ),
    Situation(
        "an execution waits and nobody is there",
        lambda: execution("enqueued", ago=40, queue="flows"),
        (("NO_WORKER", "flows"),),
        40,
        ("1 execution due",),
    ),
    Situation(
        "a draining worker serves nobody",
        _seeds(lambda: worker(draining=True), lambda: job(ago=20)),
        (("NO_WORKER", "default"),),
        1,
        ("draining",),
    ),
    Situation(
        "all slots taken and nothing ends",
        _seeds(
            lambda: worker(done=700),
            *[lambda: job("running", ago=-20)] * 2,
            lambda: job(ago=400),
            lambda: minute(720, done=1),
        ),
        (("STALLED", "default"), ("LATE", "default")),
        700,
        ("2 of 2 slots", "1 job due"),
    ),
    Situation(
        "the loop stands while the heart beats",
        _seeds(lambda: worker(poll=360, done=500), lambda: job(ago=350), lambda: minute(520, done=1)),
        (("STALLED", "default"), ("WEDGED", ""), ("LATE", "default")),
        500,
        ("do not turn",),
    ),
    Situation(
        "leases lapsed",
        _seeds(worker, lambda: job("running", ago=90, queue="a"), lambda: job("running", ago=-9, queue="a")),
        (("LEASE_LOST", "a"),),
        90,
        ("1 job in queue 'a'",),
    ),
    Situation(
        "late",
        _seeds(worker, lambda: job(ago=301, queue="mail"), lambda: job(ago=299, queue="other")),
        (("LATE", "mail"),),
        301,
        ("5 min 1 s of at most 5 min", "1 job due"),
    ),
    Situation(
        "a new cause of death",
        _seeds(
            *[lambda: job("dead", ago=600, fingerprint="f1", error_class="E", last_error="card 1 password=x")]
            * 2,
            lambda: job("dead", ago=90_000, fingerprint="f2"),
            lambda: job("failed", ago=60, fingerprint="f2"),
        ),
        (("DEAD_NEW", "default"),),
        600,
        ("2 jobs of jobsapp.ok", "password=«redacted»"),
    ),
    Situation(
        "ten times as many deaths as usual",
        _seeds(
            lambda: minute(600, dead=30),
            lambda: minute(40_000, dead=24, queue="q"),
            lambda: minute(600, job_type="calm", dead=12),
            lambda: minute(40_000, job_type="calm", dead=240),
        ),
        (("DEAD_NEW", "default"),),
        None,
        ("30 jobs of jobsapp.ok", "1.0 is usual"),
    ),
    Situation(
        "causes that somebody knows of",
        _seeds(
            *[lambda: job("dead", ago=600, fingerprint="f1", completed_by="w-1")] * 12,
            lambda: job("failed", ago=60, fingerprint="f2"),
            lambda: known("f1", ago=500),
            lambda: known("f2", ago=50, until=600),
            lambda: worker(version="v140"),
            lambda: minute(600, dead=30),
            lambda: minute(40_000, dead=24),
        ),
    ),
    Situation(
        "a mute that has ended",
        _seeds(
            *[lambda: job("failed", ago=600, fingerprint="f1", queue="q")] * 2,
            lambda: known("f1", ago=500, until=-1),
        ),
        (("DEAD_NEW", "q"),),
        600,
        ("2 jobs of jobsapp.ok",),
    ),
    Situation(
        "an acknowledged cause came back on another version",
        _seeds(
            lambda: worker("w-1", version="v140", started=9_000, stopped=4_000, beat=4_000, poll=4_000),
            lambda: worker("w-2", version="v141", started=700),
            lambda: job("dead", ago=90_000, fingerprint="f1", completed_by="w-1"),
            lambda: known("f1", ago=80_000),
            lambda: job("dead", ago=300, fingerprint="f1", completed_by="w-2", error_class="Declined"),
        ),
        (("DEAD_NEW", "default"),),
        300,
        ("Declined of jobsapp.ok came back on v141; ben", "password=«redacted»"),
    ),
    Situation(
        "more of a new cause than are told apart",
        _seeds(*[lambda: job("dead", ago=600, fingerprint="f1")] * 301),
        (("DEAD_NEW", "default"),),
        600,
        ("300+ jobs of jobsapp.ok",),
    ),
    Situation(
        "nobody knows the type",
        _seeds(
            lambda: worker(handlers='["jobsapp.ok"]'),
            *[lambda: job(ago=100, job_type="gone.type")] * 2,
            lambda: job(ago=100),
        ),
        (("UNKNOWN_TYPES", "default"),),
        100,
        ("'gone.type'", "2 rows"),
    ),
    Situation(
        "nobody knows the workflow",
        _seeds(lambda: worker(handlers='["jobsapp.ok"]'), lambda: execution("enqueued", ago=100)),
        (("UNKNOWN_TYPES", "default"),),
        100,
        ("knows 'shop.fulfil'", "1 row"),
    ),
    Situation(
        "paused executions",
        _seeds(
            lambda: execution("paused", ago=500, reason="diverged at step 3"), lambda: execution("paused")
        ),
        (("PAUSED_EXECUTIONS", ""),),
        500,
        ("2 executions paused", "diverged at step 3"),
    ),
    Situation(
        "an approval is overdue",
        _seeds(lambda: approval(ago=100), lambda: approval(ago=5), lambda: approval(ago=-100)),
        (("APPROVAL_OVERDUE", ""),),
        100,
        ("1 approval past",),
    ),
    Situation(
        "nobody wakes what sleeps",
        _seeds(
            *[lambda: approval(ago=100, kind="sleep")] * 2,
            lambda: approval(ago=200, kind="signal"),
            lambda: approval(ago=5, kind="sleep"),
        ),
        (("WAIT_OVERDUE", ""),),
        200,
        ("3 waits of workflows past their time, the first for 3 min 20 s",),
    ),
    Situation(
        "a paused queue is not late, but told",
        _seeds(
            worker,
            lambda: job(ago=1000, queue="reports"),
            lambda: pause("reports", ago=600, until=300),
            lambda: pause("over", ago=600, until=-300),
        ),
        (("PAUSED", "reports"),),
        600,
        ("'reports' is paused by ana for 10 min", "db migration"),
    ),
    Situation(
        "a paused type",
        _seeds(worker, lambda: pause("jobsapp.ok", kind="type", ago=60)),
        (("PAUSED", ""),),
        60,
        ("Type 'jobsapp.ok'", "until it is resumed"),
    ),
    Situation(
        "a worker went silent",
        _seeds(
            worker,
            lambda: worker("w-2", beat=31, poll=31),
            lambda: worker("w-3", beat=5000, poll=5000),
            lambda: worker("w-4", beat=400, poll=400, stopped=390),
            lambda: worker("w-5", beat=25, poll=25),
        ),
        (("WORKER_SILENT", ""),),
        31,
        ("w-2", "31 s"),
    ),
    Situation(
        "a bulk operation does not move",
        _seeds(
            lambda: bulk(150),
            lambda: bulk(150, pace=0.01),
            lambda: bulk(150, state="paused"),
            lambda: bulk(60),
        ),
        (("BULK_STUCK", ""),),
        150,
        ("(retry)", "40 of about 312"),
    ),
    Situation(
        "two versions",
        _seeds(
            lambda: worker("w-1", version="v140", started=90_000),
            lambda: worker("w-2", version="v141", started=1000),
            lambda: worker("w-3", version="v141", started=950),
        ),
        (("VERSION_SKEW", ""),),
        1000,
        ("v140 ×1, v141 ×2",),
    ),
    Situation(
        "a deployment under way",
        _seeds(
            lambda: worker("w-1", version="v140", started=90_000),
            lambda: worker("w-2", version="v141", started=100),
        ),
    ),
    Situation(
        "figures are not written",
        _seeds(lambda: worker(done=2), lambda: minute(600, done=3)),
        (("STATS_STALE", ""),),
        None,
        ("newest figures",),
    ),
)
