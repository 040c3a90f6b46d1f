"""The operator's questions as SQL files, and their answers. What a file asks is its first line."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from django.db import connection

SQL = Path(__file__).parent / "sql"
RUNNING, WAITING, FAILED, LOST = "running", "waiting", "failed", "lost"


@dataclass(frozen=True)
class Answer:
    question: str
    columns: list[str]
    rows: list[tuple[Any, ...]]


class BoardRow(NamedTuple):
    """One document and its job, as ``sql/board.sql`` selects them; times in seconds."""

    document: int
    title: str
    job: int
    status: str
    attempts: int
    crashes: int
    done: int
    total: int | None
    worker: str
    pid: int | None
    lease_left: float | None
    heartbeat_age: float | None
    due_in: float
    completed_by: str
    last_error: str

    @property
    def finished(self) -> bool:
        return self.status not in ("pending", "running")


def ask(name: str) -> Answer:
    """The answer to ``sql/<name>.sql`` at this moment."""
    text = _text(name)
    with connection.cursor() as cursor:
        cursor.execute(text)
        columns = [column[0] for column in cursor.description]
        return Answer(text.splitlines()[0].removeprefix("--").strip(), columns, cursor.fetchall())


def board(documents: list[int]) -> list[BoardRow]:
    """The state of these documents, in the order they were uploaded."""
    with connection.cursor() as cursor:
        cursor.execute(_text("board"), {"documents": documents})
        return [BoardRow(*row) for row in cursor.fetchall()]


@cache
def _text(name: str) -> str:
    return (SQL / f"{name}.sql").read_text(encoding="utf-8")
