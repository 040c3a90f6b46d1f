"""Handlers that do what no handler should. Each returns its `how`, so that a success shows as such."""

import asyncio
import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.utils import timezone, translation
from psycopg import IsolationLevel

from pgjobs import LeaseLost, job
from tests.jobsapp.jobs import SLICE_SECONDS, record, wait_for_gate
from tests.jobsapp.models import Effect


def begin_and_leave() -> None:
    connection.cursor().execute("BEGIN")
    Effect.objects.create(key="left in a transaction", pid=os.getpid())


def break_and_leave() -> None:
    connection.cursor().execute("BEGIN")
    with contextlib.suppress(Exception):
        connection.cursor().execute("SELECT 1 / 0")


def enter_atomic_and_leave() -> None:
    transaction.atomic().__enter__()
    Effect.objects.create(key="left in atomic", pid=os.getpid())


def turn_autocommit_off() -> None:
    transaction.set_autocommit(False)
    Effect.objects.create(key="left without autocommit", pid=os.getpid())


def change_session() -> None:
    for statement in (
        "SET statement_timeout = '1ms'",
        "SET search_path = nowhere",
        "SET default_transaction_read_only = on",
        "SELECT pg_advisory_lock(4711)",
    ):
        connection.cursor().execute(statement)


def change_thread() -> None:
    timezone.activate("Asia/Kathmandu")
    translation.activate("de")


def leave_marks() -> None:
    """What stays on Django's side of a connection, or of its session, when nothing is open."""

    def refuse(execute: Any, *args: Any) -> None:
        raise RuntimeError("a wrapper that another job has left")

    connection.force_debug_cursor = True
    connection.ensure_connection()
    connection.connection.isolation_level = IsolationLevel.SERIALIZABLE
    connection.execute_wrappers.append(refuse)


def fork_and_close() -> None:
    """The child closes what it inherited, as code that was not written for forks does."""
    Effect.objects.count()
    child = os.fork()
    if child == 0:
        connection.close()
        os._exit(0)
    os.waitpid(child, 0)
    Effect.objects.count()


def fork_and_terminate() -> None:
    """A child of multiprocessing must end at SIGTERM although the worker has a handler of its own for it."""
    child = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
    child.start()
    child.terminate()
    child.join(20)
    if child.is_alive():
        child.kill()
        raise RuntimeError("the child ignored SIGTERM")


MISDEEDS: dict[str, Callable[[], object]] = {
    f.__name__: f
    for f in (
        begin_and_leave,
        break_and_leave,
        enter_atomic_and_leave,
        turn_autocommit_off,
        change_session,
        leave_marks,
        change_thread,
        fork_and_close,
        fork_and_terminate,
    )
} | {"close_connection": lambda: connection.close()}


@job()
def misbehave(how: str) -> str:
    MISDEEDS[how]()
    return how


@job()
def inspect_surroundings() -> dict[str, Any]:
    """What a job finds when it starts."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('statement_timeout'), current_setting('search_path'), "
            "current_setting('transaction_isolation'), "
            "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
        )
        timeout, path, isolation, locks = cursor.fetchone()
    return {
        "statement_timeout": timeout,
        "search_path": path,
        "isolation": isolation,
        "debug": connection.force_debug_cursor,
        "advisory_locks": locks,
        "autocommit": connection.get_autocommit(),
        "in_atomic_block": connection.in_atomic_block,
        "time_zone": timezone.get_current_timezone_name(),
        "language": translation.get_language(),
    }


def close() -> None:
    connection.close()


def close_and_connect() -> None:
    connection.close()
    connection.connect()


def swallow_database_error() -> None:
    with contextlib.suppress(Exception):
        connection.cursor().execute("SELECT 1 / 0")


INSIDE_FINISH: dict[str, Callable[[], None]] = {
    f.__name__: f for f in (close, close_and_connect, swallow_database_error)
}


@job(takes_context=True)
def spoil_finish(ctx: Any, key: str, how: str) -> None:
    """Spoils the transaction of `ctx.finish` at the first attempt, and lets the second one be."""
    with ctx.finish():
        record(ctx, key)
        if ctx.attempt == 1:
            INSIDE_FINISH[how]()


class Unrenderable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def recursion() -> None:
    recursion()


def raise_it(error: BaseException) -> None:
    raise error


ERRORS: dict[str, Callable[[], object]] = {
    "sys_exit": lambda: raise_it(SystemExit(0)),
    "keyboard_interrupt": lambda: raise_it(KeyboardInterrupt()),
    "generator_exit": lambda: raise_it(GeneratorExit()),
    "cancelled": lambda: raise_it(asyncio.CancelledError()),
    "unrenderable": lambda: raise_it(Unrenderable()),
    "huge": lambda: raise_it(ValueError("x" * 50_000_000)),
    "nul": lambda: raise_it(ValueError("a\x00b")),
    "surrogate": lambda: raise_it(ValueError("a\ud83db")),
    "recursion": recursion,
    "crowd": lambda: raise_it(ExceptionGroup("many", [ValueError(str(n)) for n in range(5_000)])),
}


@job(max_attempts=1)
def raise_error(which: str) -> None:
    ERRORS[which]()


@job(max_attempts=1)
async def raise_error_async(which: str) -> None:
    await asyncio.sleep(0)
    ERRORS[which]()


RESULTS: dict[str, Callable[[], object]] = {
    "object": object,
    "nan": lambda: {"a": float("nan")},
    "nul": lambda: ["a\x00b"],
    "surrogate": lambda: "\ud83d",
    "large": lambda: "x" * 1_500_000,
    "queryset": lambda: Effect.objects.all(),
}


@job()
def return_result(which: str) -> object:
    return RESULTS[which]()


@job(takes_context=True)
def finish_with_result(ctx: Any, which: str) -> None:
    with ctx.finish(RESULTS[which]()):
        record(ctx, f"finish_with_result:{which}")


@job(takes_context=True)
def exit_process(ctx: Any, key: str, code: int) -> None:
    """Leaves without a word, and with the exit code of an orderly end."""
    record(ctx, key)
    os._exit(code)


@job(takes_context=True)
def kill_when_open(ctx: Any, key: str, gate: str) -> None:
    """Poison that waits for company."""
    record(ctx, key)
    wait_for_gate(gate)
    os.kill(os.getpid(), 9)


@job(takes_context=True)
def say_when_lost(ctx: Any, key: str, gate: str, talking: bool) -> None:
    """As `hold`, or `hold_talking`; leaves `<key>:lost` when it is told that its lease is gone."""
    record(ctx, f"{key}:start")
    try:
        wait_for_gate(gate, between=(lambda: ctx.progress(0)) if talking else (lambda: None))
        with ctx.finish():
            record(ctx, f"{key}:end")
    except LeaseLost:
        record(ctx, f"{key}:lost")
        raise


@job()
def return_when_open(key: str, gate: str) -> str:
    """Needs the database at its start only."""
    Effect.objects.create(key=f"{key}:start", pid=os.getpid())
    connection.close()
    wait_for_gate(gate)
    return key


@job(takes_context=True, max_attempts=1)
def cut_off_inside_finish(ctx: Any, key: str, marker: str) -> None:
    """Inside `ctx.finish` the server ends the session, as a restart would: once if there is a marker, else always."""
    with ctx.finish("done"):
        record(ctx, key)
        if not marker or not Path(marker).exists():
            if marker:
                Path(marker).touch()
            other = connection.copy()
            with other.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(%s, 20000)", [connection.connection.info.backend_pid]
                )
            other.close()
            Effect.objects.count()


@job(takes_context=True)
def finish_and_linger(ctx: Any, key: str, gate: str) -> None:
    """Goes on long after `ctx.finish` has committed, and reports progress all the while."""
    with ctx.finish("done"):
        record(ctx, f"{key}:finished")
    wait_for_gate(gate, between=lambda: ctx.progress(1))
    record(ctx, f"{key}:end")


@job(timeout=0.3, max_attempts=1)
def overrun() -> None:
    pause = threading.Event()
    while True:
        pause.wait(SLICE_SECONDS)


@job(timeout=0.3, max_attempts=1)
async def overrun_async() -> None:
    await asyncio.Event().wait()


@job(timeout=0.3, max_attempts=1)
def overrun_in_c() -> None:
    """No exception can reach a thread that is inside a call into C."""
    reading, _ = os.pipe()
    os.read(reading, 1)


@job(timeout=0.3, max_attempts=1)
def overrun_deaf(gate: str) -> None:
    """Swallows whatever is raised in it."""
    while not Path(gate).exists():
        with contextlib.suppress(BaseException):
            threading.Event().wait(SLICE_SECONDS)


@job(timeout=0.3, max_attempts=1)
async def overrun_blocking(gate: str) -> None:
    """Holds up the event loop."""
    while not Path(gate).exists():
        threading.Event().wait(SLICE_SECONDS)


@job(timeout=60)
def wait_briefly() -> None:
    """About as long as it takes to notice that it runs."""
    threading.Event().wait(0.0005)


@job()
def use_another_database(path: str) -> int:
    """Reads from a database that is no PostgreSQL, through Django."""
    from django.db import connections

    settings = {
        **connections["default"].settings_dict,
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {},
    }
    connections.settings["elsewhere"] = settings
    with connections["elsewhere"].cursor() as cursor:
        cursor.execute("SELECT 1")
        return int(cursor.fetchone()[0])


@job(takes_context=True)
def finish_and_stay(ctx: Any, key: str, gate: str) -> None:
    """Stays inside the block of ctx.finish() until the gate opens."""
    with ctx.finish():
        wait_for_gate(gate)
