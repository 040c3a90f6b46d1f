"""The months of the job archive: partitions made when a job needs one, dropped whole when their time is over.

Nobody waits long here: every lock has a timeout, so that a long reader of the archive cannot hold up a worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.db import transaction

from pgjobs.connections import rows

LOCK_TIMEOUT = "1s"
"""Longest wait for any lock of this room; SQLSTATE 55P03 after it."""

_TABLE = "pgjobs_archivedjob"
_NAME = re.compile(rf"{_TABLE}_y(\d{{4}})m(\d{{2}})")
_ADVISORY_KEY = 5_147_630_994_312_011

_MONTHS = f"""
SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = '{_TABLE}'::regclass ORDER BY child.relname"""  # noqa: S608

_SCHEMA = f"""
SELECT format('%%I', nspname) FROM pg_class JOIN pg_namespace AS schema ON schema.oid = relnamespace
WHERE pg_class.oid = '{_TABLE}'::regclass"""  # noqa: S608

# Attached rather than made as a partition: that would lock out everybody who reads the archive.
_CREATE = "CREATE TABLE {name} (LIKE {schema}." + _TABLE + " INCLUDING ALL)"
_ATTACH = (
    "ALTER TABLE {schema}." + _TABLE + " ATTACH PARTITION {name} FOR VALUES FROM ('{start}') TO ('{end}')"
)

_FIRST_KEPT = """
SELECT to_char(date_trunc('month', statement_timestamp() - make_interval(secs => %(seconds)s), 'UTC')
               AT TIME ZONE 'UTC', 'YYYYMM')"""


def bound_locks(using: str) -> None:
    """Have the present transaction wait for no lock longer than :data:`LOCK_TIMEOUT`."""
    rows(using, "SELECT set_config('lock_timeout', %(timeout)s, true)", {"timeout": LOCK_TIMEOUT})


def months(*, using: str) -> list[str]:
    """The months that have a partition, as "202611", ascending. Partitions under other names are not ours."""
    found = (_NAME.fullmatch(name) for (name,) in rows(using, _MONTHS, {}))
    return sorted(match[1] + match[2] for match in found if match)


def create_months(wanted: Iterable[str], *, using: str) -> list[str]:
    """Make the partitions of these months that are missing; the months made. Any number of processes may call it.

    Raises Django's ProgrammingError when the role may not create tables, OperationalError (SQLSTATE 55P03) when
    the archive is locked for longer than :data:`LOCK_TIMEOUT`.
    """
    made = []
    missing = sorted(set(wanted) - set(months(using=using)))
    for month in missing:
        with transaction.atomic(using=using):
            bound_locks(using)
            rows(using, "SELECT pg_advisory_xact_lock(%(key)s)", {"key": _ADVISORY_KEY})
            if month not in months(using=using):
                _create(month, using=using)
                made.append(month)
    return made


def drop_months(older_than: float, *, using: str) -> list[str]:
    """Drop the partitions of months that ended more than ``older_than`` seconds ago; the months dropped.

    Each is one statement of its own, whatever it holds. Raises OperationalError (SQLSTATE 55P03) when somebody
    reads the archive for longer than :data:`LOCK_TIMEOUT`.
    """
    ((first_kept,),) = rows(using, _FIRST_KEPT, {"seconds": older_than})
    gone = [month for month in months(using=using) if month < first_kept]
    for month in gone:
        with transaction.atomic(using=using):
            bound_locks(using)
            rows(using, f"DROP TABLE IF EXISTS {_qualified(month, using)}", {})
    return gone


def following(month: str) -> str:
    """The month after, "202612" after "202611"."""
    year, number = divmod(int(month[:4]) * 12 + int(month[4:]), 12)
    return f"{year:04}{number + 1:02}"


def _create(month: str, *, using: str) -> None:
    name, schema = _qualified(month, using), _schema(using)
    start, end = (f"{each[:4]}-{each[4:]}-01 00:00:00+00" for each in (month, following(month)))
    rows(using, _CREATE.format(name=name, schema=schema), {})
    rows(using, _ATTACH.format(name=name, schema=schema, start=start, end=end), {})


def _qualified(month: str, using: str) -> str:
    """In the schema of the archive itself, which need not be the first of the search path."""
    return f"{_schema(using)}.{_TABLE}_y{month[:4]}m{month[4:]}"


def _schema(using: str) -> str:
    ((schema,),) = rows(using, _SCHEMA, {})
    return str(schema)
