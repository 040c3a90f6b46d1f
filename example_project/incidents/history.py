"""An incident's story, told by the rows of its execution. Each question is an SQL file whose first line asks it."""

import datetime as dt
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from django.db import connection

SQL = Path(__file__).parent / "sql"


class Event(NamedTuple):
    """One line of the timeline, as ``sql/timeline.sql`` selects it."""

    at: dt.datetime
    what: str
    """Step, wait, worker or workflow."""
    how: str
    attempts: int | None
    detail: str


def timeline(execution_id: int) -> list[Event]:
    """Everything an execution did, in order; empty for one that was archived or deleted."""
    return [Event(*row) for row in _rows("timeline", {"execution": execution_id})[1]]


def rejected_fixes() -> tuple[str, list[str], list[tuple[Any, ...]]]:
    """Question, column names and rows: which fixes were rejected, at which step, by whom."""
    return question("rejected"), *_rows("rejected", None)


def question(name: str) -> str:
    """What a file asks."""
    return _text(name).splitlines()[0].removeprefix("--").strip()


def _rows(name: str, parameters: dict[str, Any] | None) -> tuple[list[str], list[tuple[Any, ...]]]:
    with connection.cursor() as cursor:
        cursor.execute(_text(name), parameters)
        return [column[0] for column in cursor.description], cursor.fetchall()


@cache
def _text(name: str) -> str:
    return (SQL / f"{name}.sql").read_text(encoding="utf-8")
