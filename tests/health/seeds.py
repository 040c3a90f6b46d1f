"""Rows of any age, as workers, people and other services leave them."""

from __future__ import annotations

import uuid
from typing import Any

from tests.support.own_database import connection


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


def approval(*, ago: float, kind: str = "approval") -> None:
    """A wait whose time has come `ago` seconds ago."""
    pk = execution("waiting", ago=ago + 60)
    run(
        "INSERT INTO pgjobs_wait (execution_id, step_id, kind, ordinal, wake_at) "
        "VALUES (%s, 'ok#1', %s, 1, statement_timestamp() - make_interval(secs => %s))",
        pk,
        kind,
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


def known(fingerprint: str, *, ago: float, until: float | None = None, versions: str = '["v140"]') -> None:
    """Acknowledged, or muted for `until` more seconds, by ben."""
    run(
        'INSERT INTO pgjobs_acknowledgement (fingerprint, "by", since, until, note, versions) VALUES (%s, %s, '
        "statement_timestamp() - make_interval(secs => %s), statement_timestamp() + make_interval(secs => %s::float8), "
        "%s, %s)",
        fingerprint,
        "ben",
        ago,
        until,
        "the bank is down, password=x",
        versions,
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
