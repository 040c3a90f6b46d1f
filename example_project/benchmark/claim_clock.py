"""Times the product's claim inside a worker process, from outside the product: by Django's execute wrappers.

Each claim that found something becomes one line, seconds and rows, in the file that the
environment names; the first one is written out as SQL beside it.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from django.db.backends.signals import connection_created

VARIABLE = "PGJOBS_BENCHMARK_CLAIMS"
CLAIM = "attempt_count = leased.attempt_count + 1"
"""Stands in the claim and in no other statement: that is what a claim does."""


def install(path: str) -> None:
    """Time the claims of every connection that this process opens."""
    text = Path(f"{path}.sql")
    # One small write of a line to a file opened for appending is whole, whoever else writes.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def timed(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if CLAIM not in sql:
            return execute(sql, params, many, context)
        began = time.perf_counter()
        result = execute(sql, params, many, context)
        seconds = time.perf_counter() - began
        if (rows := context["cursor"].rowcount) > 0:
            os.write(file, f"{seconds:.6f} {rows}\n".encode())
            if not text.exists():
                text.write_text(_literal(sql, params, context["connection"]))
        return result

    def attach(connection: Any, **kwargs: Any) -> None:
        if timed not in connection.execute_wrappers:
            connection.execute_wrappers.append(timed)

    connection_created.connect(attach, weak=False)


def _literal(sql: str, params: Any, connection: Any) -> str:
    """The statement with its values in it, as it could be typed."""
    with psycopg.ClientCursor(connection.connection) as cursor:
        return cursor.mogrify(sql, params)


def statement(path: Path) -> str:
    """A claim that brought something, with its values."""
    return Path(f"{path}.sql").read_text()


def read(path: Path) -> list[tuple[float, int]]:
    """Seconds and rows of each claim so far."""
    if not path.exists():
        return []
    return [(float(seconds), int(rows)) for seconds, rows in map(str.split, path.read_text().splitlines())]
