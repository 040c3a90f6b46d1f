"""Commits of the engine held up inside the database, so that a test can choose what happens at that moment."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from tests.support.own_database import QUEUE, connection
from tests.support.waiting import wait_until

_KEY = 4_711


@contextmanager
def held(table: str, event: str, when: str = "true") -> Iterator["Hold"]:
    """From now on, transactions that have changed such rows wait, in their commit, until :meth:`Hold.let_go`.

    ``event`` is "INSERT", "UPDATE" or "UPDATE OF column"; ``when`` a condition on NEW (and OLD).
    """
    hold = Hold()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_KEY])
        cursor.execute(
            # The engine gives up on locks that it waits for; what is held up here is waited for, as a slow disk is.
            "CREATE OR REPLACE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS"
            f" $$ BEGIN PERFORM pg_advisory_xact_lock_shared({_KEY}); RETURN NULL; END $$"
        )
        cursor.execute(
            f"CREATE CONSTRAINT TRIGGER hold_up AFTER {event} ON {table} DEFERRABLE INITIALLY DEFERRED"
            f" FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION hold_up()"
        )
    try:
        yield hold
    finally:
        hold.let_go()
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER hold_up ON {table}")


class Hold:
    """What is held up now."""

    def __init__(self) -> None:
        self._locked = True

    def wait_reached(self, timeout: float = 30.0) -> int:
        """The server process that waits here, once one does."""
        return wait_until(lambda: (self.waiting() or [0])[0], timeout, "a commit to be held up")

    def waiting(self) -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted", [_KEY]
            )
            return [pid for (pid,) in cursor.fetchall()]

    def let_go(self) -> None:
        """Lets everything go on. Returns when what waited has ended its transaction."""
        if self._locked:
            self._locked = False
            held_up = self.waiting()
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_KEY])
            wait_until(lambda: not in_transaction(held_up), 30, "the end of what was held up")


def in_transaction(pids: list[int]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s) AND state <> 'idle' AND xact_start IS NOT NULL",
            [pids],
        )
        return [pid for (pid,) in cursor.fetchall()]


def sessions_waiting_for(pid: int) -> list[int]:
    """Server processes that a server process holds up."""
    with connections[QUEUE].cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))", [pid])
        return [waiting for (waiting,) in cursor.fetchall()]
