"""Many rows by COPY. Their ids are drawn from the table's sequence before, since COPY returns nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from django.db import connections, transaction

from pgjobs.connections import retrying, row

_ROWS_AT_A_TIME = 200
_NULL = "\\N"
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

_PREPARE = """
SELECT (SELECT string_agg(nextval(own.sequence)::text, ' ')
        FROM (SELECT pg_get_serial_sequence('pgjobs_job', 'id')::regclass AS sequence OFFSET 0) AS own,
             generate_series(1, %(count)s)),
       to_json(statement_timestamp()) #>> '{}',
       to_json(COALESCE(%(at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s))) #>> '{}'"""
_SILENCE = ", set_config('pgjobs.notify', 'off', true)"


def copy_jobs(
    columns: Mapping[str, Any],
    texts: Callable[[], Iterable[str]],
    keys: Sequence[str | None],
    *,
    at: dt.datetime | None,
    delay: float,
    silent: bool,
    using: str,
) -> list[int]:
    """Insert a row for each of ``keys``, with payloads of ``texts``, all or none; their ids in the order given.

    ``columns`` are the same for all. They become due ``at``, or ``delay`` seconds after now by the database's clock.
    ``silent`` sends no NOTIFY.
    """
    params = {"count": len(keys), "at": at, "delay": delay}

    def work() -> list[str]:
        with transaction.atomic(using=using):
            drawn, now, due, *_ = row(using, _PREPARE + (_SILENCE if silent else ""), params)
            ids: list[str] = drawn.split()
            times = {"created_at": now, "available_at": due} if now != due else {}
            _copy(using, {**columns, **times}, zip(ids, texts(), keys, strict=True))
        return ids

    return [int(pk) for pk in retrying(using, work)]


def _copy(using: str, same: Mapping[str, Any], jobs: Iterable[tuple[str, str, str | None]]) -> None:
    sql = f"COPY pgjobs_job (id, payload, idempotency_key, {', '.join(same)}) FROM STDIN"
    tail = "\t".join(str(value).translate(_ESCAPED) for value in same.values()) + "\n"
    connection = connections[using]
    # Django passes `copy` on to psycopg without turning its errors into Django's.
    with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(sql) as copy:
        lines = _lines(jobs, tail)
        while block := "".join(islice(lines, _ROWS_AT_A_TIME)):
            copy.write(block)


def _lines(jobs: Iterable[tuple[str, str, str | None]], tail: str) -> Iterator[str]:
    for pk, text, key in jobs:
        # JSON writes control characters as escapes, so that backslashes are all there is to escape.
        payload = text.replace("\\", "\\\\")
        yield f"{pk}\t{payload}\t{_NULL if key is None else key.translate(_ESCAPED)}\t{tail}"
