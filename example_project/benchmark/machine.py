"""What a figure is worth nothing without: the machine, the versions, the server's settings."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import django
import psycopg

import pgjobs

SERVER_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "wal_level",
    "autovacuum",
)


def describe(connection: psycopg.Connection) -> dict[str, str]:
    """Words for people; nothing that names this machine."""
    told = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_processor()}, {_cores()} cores for us",
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "pgjobs": pgjobs.__version__,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Django": django.__version__,
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
    }
    rows = connection.execute(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [list(SERVER_SETTINGS)]
    ).fetchall()
    values: dict[str, str] = dict(rows)
    told["PostgreSQL"] = values.pop("server_version")
    told["server settings"] = ", ".join(
        f"{name} {values[name]}" for name in SERVER_SETTINGS if name in values
    )
    return told


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "unknown"
    return f"{size / 1e9:.0f} GB"
