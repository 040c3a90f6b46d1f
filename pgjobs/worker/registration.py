"""The worker's own row: written at start, touched by the heartbeat, closed at the end."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

import django
import psycopg

from pgjobs import __version__
from pgjobs.codec import storable_text
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.queue.stats import silence_seconds
from pgjobs.worker.options import WorkerOptions

logger = logging.getLogger("pgjobs.worker")

_REGISTER = """
INSERT INTO pgjobs_worker (name, host, pid, version, queues, slots, code_version, handlers, heartbeat_seconds,
                           runtime)
VALUES (%(name)s, %(host)s, %(pid)s, %(version)s, %(queues)s::jsonb, %(slots)s, %(code_version)s,
        %(handlers)s::jsonb, %(heartbeat_seconds)s, %(runtime)s::jsonb)
ON CONFLICT (name) DO NOTHING"""

_TOUCH = """
UPDATE pgjobs_worker SET heartbeat_at = clock_timestamp(),
    last_poll_at = clock_timestamp() - make_interval(secs => %(poll_age)s),
    last_done_at = COALESCE(clock_timestamp() - make_interval(secs => %(done_age)s::float8), last_done_at),
    end_reason = '', busy = %(busy)s, draining = %(draining)s, rss_bytes = %(rss)s::bigint,
    chores = (SELECT COALESCE(jsonb_object_agg(name, clock_timestamp() - make_interval(secs => age::float8)), '{}')
              FROM jsonb_each(%(chores)s::jsonb) AS each(name, age))
WHERE id IN (SELECT id FROM pgjobs_worker WHERE name = %(name)s FOR NO KEY UPDATE SKIP LOCKED)"""

_CLOSE = """
UPDATE pgjobs_worker SET stopped_at = clock_timestamp(), end_reason = %(reason)s WHERE id IN (
    SELECT id FROM pgjobs_worker WHERE name = %(name)s AND stopped_at IS NULL FOR NO KEY UPDATE SKIP LOCKED)"""

# Once for each silence: who is heard of again is as it was. Rows that were silent before are no news any more.
_NOTE_SILENT = """
WITH silent AS (
    UPDATE pgjobs_worker SET end_reason = 'silent' WHERE id IN (
        SELECT id FROM pgjobs_worker
        WHERE stopped_at IS NULL AND end_reason = '' AND heartbeat_at > clock_timestamp() - interval '1 day'
          AND heartbeat_at < clock_timestamp() - make_interval(secs => %(age)s)
        ORDER BY id LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING name, code_version, queues, heartbeat_at
)
INSERT INTO pgjobs_activity (kind, target_kind, target_id, details)
SELECT 'worker_stopped', 'worker', name,
       jsonb_build_object('version', code_version, 'queues', queues, 'end', 'silent', 'heard_at', heartbeat_at)
FROM silent ORDER BY heartbeat_at"""

# It claims nothing, so to whoever looks for workers it is one that has stopped, with no slots; its chore is told of.
_REAPED = """
INSERT INTO pgjobs_worker (name, host, pid, version, queues, slots, heartbeat_seconds, heartbeat_at, stopped_at, chores)
VALUES (%(name)s, %(host)s, %(pid)s, %(version)s, '[]', 0, %(interval)s, clock_timestamp(), clock_timestamp(),
        jsonb_build_object('reaper', clock_timestamp()))
ON CONFLICT (name) DO UPDATE
SET heartbeat_at = EXCLUDED.heartbeat_at, stopped_at = EXCLUDED.stopped_at, chores = EXCLUDED.chores"""

# A worker that has been silent for the whole history is gone, whether or not it said so.
_FORGET = """
DELETE FROM pgjobs_worker WHERE id IN (
    SELECT id FROM pgjobs_worker
    WHERE heartbeat_at < clock_timestamp() - make_interval(secs => %(age)s)
    ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED)"""


def new_name(slot: str) -> str:
    """A name that no process has had: host, place in its supervisor, and something random."""
    return f"{socket.gethostname()[:100]}.{slot}.{secrets.token_hex(4)}"


def register(options: WorkerOptions, handlers: Iterable[str], *, using: str) -> None:
    """Write the row of this process, which can run what is named in ``handlers``."""
    params = {
        "name": options.name,
        "host": socket.gethostname()[:200],
        "pid": os.getpid(),
        "version": __version__,
        "queues": json.dumps(list(options.queues)),
        "slots": options.concurrency,
        "code_version": code_version(),
        "handlers": json.dumps(sorted(handlers)),
        "heartbeat_seconds": options.heartbeat_seconds,
        "runtime": json.dumps(_runtime()),
    }
    rows(using, _REGISTER, params)


def reaped(name: str, interval: float, *, using: str) -> None:
    """``runreaper`` has made a pass, and makes one every ``interval`` seconds. Its first call makes the row."""
    params = {
        "name": name,
        "host": socket.gethostname()[:200],
        "pid": os.getpid(),
        "version": __version__,
        "interval": interval,
    }
    rows(using, _REAPED, params)


def code_version() -> str:
    """The version of the project's code: by setting, function or environment; empty when nobody says it."""
    given = get_settings().code_version or os.environ.get("PGJOBS_CODE_VERSION", "")
    try:
        return storable_text(str(given() if callable(given) else given), 400)[:100]
    except Exception:
        logger.exception("PGJOBS['CODE_VERSION'] raised; this worker reports no version")
        return ""


def _runtime() -> dict[str, str]:
    return {
        "python": sys.version.partition(" ")[0],
        "django": django.get_version(),
        "psycopg": psycopg.__version__,
    }


def _rss_bytes() -> int | None:
    """Memory of this process; None where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a process says of itself with each heartbeat."""

    poll_age: float = 0.0
    """Seconds since its claim loop last turned."""
    done_age: float | None = None
    """Seconds since a job or a turn last ended; None: none has yet."""
    busy: int = 0
    """Slots in use."""
    draining: bool = False
    """It finishes what it has and claims no more."""
    chores: Mapping[str, float] = field(default_factory=dict)
    """Seconds since it last did each, or saw that there is nothing to do; those it has not done are left out."""


def touch(name: str, vitals: Vitals, *, using: str) -> None:
    """Say that the process lives, and how it is. A row that somebody holds is left: renewals must not wait for it."""
    said = {**asdict(vitals), "chores": json.dumps(vitals.chores)}
    rows(using, _TOUCH, {"name": name, "rss": _rss_bytes(), **said})


def close(name: str, *, reason: str = "", using: str) -> None:
    """Say that the process has ended; also called for it by its supervisor, with a ``reason`` if it has died.

    Waits for nobody who holds the row.
    """
    rows(using, _CLOSE, {"name": name, "reason": reason})


def note_silent(*, using: str) -> None:
    """Note workers of which nothing is heard any more and nobody has said that they ended, one line each."""
    rows(using, _NOTE_SILENT, {"age": silence_seconds()})


def forget_old(*, using: str) -> None:
    """Remove the rows of workers that have long been gone."""
    rows(using, _FORGET, {"age": get_settings().worker_history_seconds})
