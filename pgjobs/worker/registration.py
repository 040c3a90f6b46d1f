"""The worker's own row: written at start, touched by the heartbeat, closed at the end."""

from __future__ import annotations

import json
import os
import secrets
import socket

from pgjobs import __version__
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.worker.options import WorkerOptions

_REGISTER = """
INSERT INTO pgjobs_worker (name, host, pid, version, queues, slots)
VALUES (%(name)s, %(host)s, %(pid)s, %(version)s, %(queues)s::jsonb, %(slots)s)
ON CONFLICT (name) DO NOTHING"""

_TOUCH = """
UPDATE pgjobs_worker SET heartbeat_at = clock_timestamp(),
    last_poll_at = clock_timestamp() - make_interval(secs => %(poll_age)s)
WHERE name = %(name)s"""

_CLOSE = (
    "UPDATE pgjobs_worker SET stopped_at = clock_timestamp() WHERE name = %(name)s AND stopped_at IS NULL"
)

# A worker that has been silent for the whole history is gone, whether or not it said so.
_FORGET = """
DELETE FROM pgjobs_worker WHERE id IN (
    SELECT id FROM pgjobs_worker
    WHERE heartbeat_at < clock_timestamp() - make_interval(secs => %(age)s)
    ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED)"""


def new_name(slot: str) -> str:
    """A name that no process has had: host, place in its supervisor, and something random."""
    return f"{socket.gethostname()[:100]}.{slot}.{secrets.token_hex(4)}"


def register(options: WorkerOptions, *, using: str) -> None:
    """Write the row of this process."""
    params = {
        "name": options.name,
        "host": socket.gethostname()[:200],
        "pid": os.getpid(),
        "version": __version__,
        "queues": json.dumps(list(options.queues)),
        "slots": options.concurrency,
    }
    rows(using, _REGISTER, params)


def touch(name: str, poll_age: float, *, using: str) -> None:
    """Say that the process lives, and that its claim loop last turned ``poll_age`` seconds ago."""
    rows(using, _TOUCH, {"name": name, "poll_age": poll_age})


def close(name: str, *, using: str) -> None:
    """Say that the process has ended; also called for it by its supervisor."""
    rows(using, _CLOSE, {"name": name})


def forget_old(*, using: str) -> None:
    """Remove the rows of workers that have long been gone."""
    rows(using, _FORGET, {"age": get_settings().worker_history_seconds})
