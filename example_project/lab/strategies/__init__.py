"""The ways to claim a job, each in a file of its own: ``claim`` hands out a row or None, ``settle`` ends it."""

import importlib
from datetime import datetime
from typing import Protocol

import psycopg

PLAIN = ("naive", "blocking", "held", "skip_locked")
"""On the lab's own table, with plain psycopg."""
PRODUCT = "pgjobs"
ALL = (*PLAIN, PRODUCT)

Claim = tuple[int, datetime]
"""The job's id, and when it was handed out by the database's clock."""


class Strategy(Protocol):
    """What a module of this package offers. The connection is in autocommit."""

    def claim(self, connection: psycopg.Connection, worker: str) -> Claim | None:
        """Take the best job, or None when there is none left to take."""

    def settle(self, connection: psycopg.Connection, worker: str, job: int) -> None:
        """Its work is done."""


def load(name: str) -> Strategy:
    return importlib.import_module(f"{__name__}.{name}")
