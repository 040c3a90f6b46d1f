"""Situations that a real queue gets into, as rows: what the examination must say of each."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.own_database import connection

Seed = Callable[[], None]


def run(sql: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def job(status: str = "pending", *, ago: float = 0, queue: str = "default", **columns: Any) -> int:
    """One job; `ago` seconds since it became due, or since it ended."""
    values: dict[str, Any] = {"job_type": "jobsapp.ok", "queue": queue, "status": status, **columns}
    if status == "running":
        values |= {"lease_owner": columns.get("lease_owner", "w-1"), "lease_token": str(uuid.uuid4())}
        values |= {"attempt_count": 1}
    names, marks = list(values), ["%s"] * len(values)
    since = "statement_timestamp() - make_interval(secs => %s)"
    times = {"available_at": since, "created_at": since}
    if status == "running":
        times = {"lease_expires_at": since, "started_at": since, "heartbeat_at": since}
    elif status != "pending":
        times["completed_at"] = since
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO pgjobs_job ({', '.join([*names, *times])}) "  # noqa: S608
            f"VALUES ({', '.join([*marks, *times.values()])}) RETURNING id",
            [*values.values(), *([ago] * len(times))],
        )
        return int(cursor.fetchone()[0])


def worker(
    name: str = "w-1",
    *,
    queues: str = "[]",
    beat: float = 1,
    poll: float = 1,
    started: float = 3600,
    done: float | None = None,
    stopped: float | None = None,
    slots: int = 2,
    version: str = "",
    handlers: str | None = None,
    draining: bool = False,
) -> None:
    """One process; numbers are seconds ago."""
    ago = "statement_timestamp() - make_interval(secs => %s::float8)"
    run(
        "INSERT INTO pgjobs_worker (name, host, pid, version, queues, slots, code_version, handlers, draining, "  # noqa: S608
        "heartbeat_seconds, heartbeat_at, last_poll_at, started_at, last_done_at, stopped_at) "
        f"VALUES (%s, 'host-a', 4711, '1', %s, %s, %s, %s, %s, 10, {ago}, {ago}, {ago}, {ago}, {ago})",
        name,
        queues,
        slots,
        version,
        handlers,
        draining,
        beat,
        poll,
        started,
        done,
        stopped,
    )


def minute(
    ago: float, queue: str = "default", job_type: str = "jobsapp.ok", done: int = 0, dead: int = 0
) -> None:
    """Figures of the minute so many seconds ago."""
    run(
        "INSERT INTO pgjobs_minute (minute, queue, job_type, done, dead, wait_counts, run_counts) VALUES "
        "(date_trunc('minute', statement_timestamp() - make_interval(secs => %s)), %s, %s, %s, %s, '{1}', '{1}')",
        ago,
        queue,
        job_type,
        done,
        dead,
    )


def execution(status: str, *, ago: float = 0, reason: str = "", queue: str = "default") -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_execution (workflow_name, status, queue, available_at, updated_at, pause_reason) "
            "SELECT 'shop.fulfil', %s, %s, at, at, %s "
            "FROM (SELECT statement_timestamp() - make_interval(secs => %s) AS at) AS t RETURNING id",
            [status, queue, reason, ago],
        )
        return int(cursor.fetchone()[0])


def approval(*, ago: float) -> None:
    pk = execution("waiting", ago=ago + 60)
    run(
        "INSERT INTO pgjobs_wait (execution_id, step_id, kind, ordinal, wake_at) "
        "VALUES (%s, 'ok#1', 'approval', 1, statement_timestamp() - make_interval(secs => %s))",
        pk,
        ago,
    )


def pause(name: str, *, kind: str = "queue", ago: float, until: float | None = None) -> None:
    run(
        'INSERT INTO pgjobs_queuepause (kind, name, reason, "by", since, until) VALUES (%s, %s, %s, %s, '
        "statement_timestamp() - make_interval(secs => %s), statement_timestamp() + make_interval(secs => %s::float8))",
        kind,
        name,
        "db migration",
        "ana",
        ago,
        until,
    )


def bulk(ago: float, *, state: str = "running", pace: float | None = None) -> None:
    run(
        "INSERT INTO pgjobs_bulkoperation (verb, filter, options, upper_id, before, reason, actor, via, state, pace, "
        "total, done, skipped, conflict, failed, watched, conflicts, cursor_id, allowance, carried_by, note, "
        "progress_at) "
        "VALUES ('retry', '{}', '{}', 1, now(), 'r', 'ana', 'api', %s, %s, 312, 40, 0, 0, 0, '[]', '[]', 0, 0, '', '', "
        "statement_timestamp() - make_interval(secs => %s))",
        state,
        pace,
        ago,
    )


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
