"""One entrant's turn: its measurements, each on a fresh copy of its database, each refused unless all work was done."""

import json
import os
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from example_project.benchmark import idle
from example_project.benchmark.bench import Sizes
from example_project.benchmark.fleet import LOOK_SECONDS, Fleet
from example_project.benchmark.peers import program
from example_project.benchmark.peers.arena import Arena
from example_project.benchmark.peers.entrant import Entrant
from example_project.benchmark.peers.environments import Environment
from example_project.demo.crew import MANAGE, DemoError

PROGRAMS = "example_project.benchmark.peers.programs"
ROOT = MANAGE.parent
SLOWEST_PER_SECOND = 20  # jobs or steps; slower than that is taken as standing still
START_SECONDS = 60.0
SETTLE_SECONDS = 2.0
OUR_TRANSACTIONS = 2
"""Of the benchmark itself, between the two counts."""
HIDDEN = ("PG", "DJANGO_", "PYTHON", "VIRTUAL_ENV", "DATABASE_URL", "PEER_")

Samples = dict[str, list[float]]
PARTS = ("drain", "enqueue", "pickup", "steps")


class EntrantFailed(DemoError):
    """It did not do its work; the text says what was seen."""


@dataclass(frozen=True)
class Turn:
    entrant: Entrant
    environment: Environment
    arena: Arena
    fleet: Fleet
    sizes: Sizes

    @property
    def base(self) -> str:
        return f"{self.entrant.name.replace('-', '_')}_base"

    def prepare(self) -> None:
        """Install its schema in the database that each measurement copies."""
        self._call("prepare", self.arena.create(self.base), START_SECONDS)

    def take(self, parts: Collection[str] = PARTS) -> Samples:
        """Those of ``parts`` that this entrant can be measured in."""
        can = {
            "drain": (self.drain, self.entrant.has_jobs),
            "enqueue": (self.enqueue, self.entrant.has_jobs),
            "pickup": (self.pick_up, self.entrant.has_jobs and self.entrant.picks_up),
            "steps": (self.steps, self.entrant.has_steps),
        }
        samples: Samples = {}
        for part in parts:
            measure, possible = can[part]
            if possible:
                samples |= measure()
        return samples

    def drain(self) -> Samples:
        """Bulk enqueue with no worker about, then a worker on what lies there."""
        jobs = self.sizes.jobs
        with self._database() as (url, connection):
            bulk = self._call("bulk", url, START_SECONDS + jobs / SLOWEST_PER_SECOND, jobs)
            self.arena.settle()
            with self._worker(url):
                seen = self._wait(connection, self.entrant.unfinished, jobs)
            observed = self.entrant.clock == "observed"
            succeeded = self._succeeded(connection) + (jobs if observed else 0)
            self._require(succeeded, jobs, "jobs succeeded at their first attempt")
            rate = seen if observed else jobs / _row(connection, self.entrant.span)[0]
        return {"drain": [rate], "bulk": [jobs / bulk]}

    def enqueue(self) -> Samples:
        count = self.sizes.singles
        with self._database() as (url, _):
            seconds = self._call("single", url, START_SECONDS + count / SLOWEST_PER_SECOND, count)
        return {"single": [count / seconds]}

    def pick_up(self) -> Samples:
        """An idle worker: what it costs, then how soon it begins a job that is enqueued alone."""
        arrivals = self.fleet.folder / "arrivals"
        for path in (arrivals, arrivals.with_suffix(".sent")):
            path.unlink(missing_ok=True)
        with self._database() as (url, connection), self._worker(url, arrivals):
            self._call(
                "paced", url, START_SECONDS, 1, arrivals=arrivals
            )  # not counted: late imports, connections
            costs = self._idle(connection)
            for path in (arrivals, arrivals.with_suffix(".sent")):
                path.unlink()
            limit = START_SECONDS + self.sizes.pickups * 5
            self._call("paced", url, limit, self.sizes.pickups, arrivals=arrivals)
        began, sent = _times(arrivals), _times(arrivals.with_suffix(".sent"))
        self._require(len(began), self.sizes.pickups, "lone jobs began")
        return {"pickup_ms": [(began[number] - at) / 1e6 for number, at in sent.items()], **costs}

    def steps(self) -> Samples:
        executions, steps = self.sizes.executions, self.sizes.steps
        wanted = executions * steps
        with self._database() as (url, connection):
            self._call("flows", url, START_SECONDS, executions, steps)
            self.arena.settle()
            with self._worker(url):
                self._wait(connection, self.entrant.steps_unfinished, wanted)
            self._require(_row(connection, self.entrant.steps_recorded)[0], wanted, "steps were recorded")
            (seconds,) = _row(connection, self.entrant.steps_span)
        return {"steps": [wanted / seconds]}

    def _idle(self, connection: psycopg.Connection) -> Samples:
        time.sleep(SETTLE_SECONDS)
        before, since = _transactions(connection)
        time.sleep(self.sizes.idle_seconds)
        after, until = _transactions(connection)
        members = session_members(self.fleet.pid(self.entrant.name))
        sizes = [idle.memory(pid) for pid in members]
        return {
            "idle_transactions": [max(after - before - OUR_TRANSACTIONS, 0) / (until - since)],
            "idle_mb": [sum(resident if share is None else share for resident, share in sizes)],
        }

    @contextmanager
    def _database(self) -> Iterator[tuple[str, psycopg.Connection]]:
        url = self.arena.create("turn", self.base)
        try:
            with psycopg.connect(
                url, autocommit=True, application_name="pgjobs_benchmark_looks"
            ) as connection:
                yield url, connection
        finally:
            self.arena.drop("turn")

    @contextmanager
    def _worker(self, url: str, arrivals: Path | None = None) -> Iterator[None]:
        self.fleet.start_command(
            self.entrant.name, self._command("work"), self._environment(url, arrivals), ROOT
        )
        try:
            yield
        finally:
            self.fleet.kill(self.entrant.name)

    def _wait(self, connection: psycopg.Connection, unfinished: str, count: int) -> float:
        """Until nothing is left; the rate that looks alone give, 0 when they did not see the beginning."""
        limit = START_SECONDS + count / SLOWEST_PER_SECOND
        deadline = time.monotonic() + limit
        observed = self.entrant.clock == "observed"
        at_first, began, seen = self._succeeded(connection), 0.0, 0.0
        while _row(connection, unfinished) == (True,):
            self.fleet.check()
            if time.monotonic() > deadline:
                raise EntrantFailed(f"it had work left after {limit:.0f} s; its log ends:\n{self._log()}")
            if not began and observed and (now := self._succeeded(connection)) > at_first:
                began, seen = time.monotonic(), now - at_first
            time.sleep(LOOK_SECONDS if observed else 5 * LOOK_SECONDS)
        return (count - seen) / (time.monotonic() - began) if began else 0.0

    def _succeeded(self, connection: psycopg.Connection) -> float:
        return _row(connection, self.entrant.succeeded)[0]

    def _call(
        self, verb: str, url: str, seconds: float, *numbers: int, arrivals: Path | None = None
    ) -> float:
        try:
            done = subprocess.run(
                [*self._command(verb), *map(str, numbers)],
                cwd=ROOT,
                env=self._environment(url, arrivals),
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired as error:
            raise EntrantFailed(f"{verb!r} took longer than {seconds:.0f} s") from error
        if done.returncode:
            raise EntrantFailed(f"{verb!r} ended with exit code {done.returncode}:\n{done.stderr[-1500:]}")
        measured: float | None = json.loads(done.stdout.splitlines()[-1])["seconds"]
        return measured or 0.0

    def _command(self, verb: str) -> list[str]:
        return [str(self.environment.python), "-m", f"{PROGRAMS}.{self.entrant.module}", verb]

    def _environment(self, url: str, arrivals: Path | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
        own = {
            program.DATABASE: url,
            program.VARIANT: self.entrant.variant,
            program.CONCURRENCY: str(self.sizes.concurrency),
            "PYTHONPATH": str(ROOT),
        }
        return kept | own | ({program.ARRIVALS: str(arrivals)} if arrivals else {})

    def _require(self, found: float, wanted: float, what: str) -> None:
        if found != wanted:
            raise EntrantFailed(f"{found:g} {what} instead of {wanted:g}; its log ends:\n{self._log()}")

    def _log(self) -> str:
        return self.fleet.log_tail(self.entrant.name, 1500)


def session_members(leader: int) -> list[int]:
    """Process ids of a session, where the system tells them; else the leader's alone."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            members.append(int(stat.parent.name))
    return members or [leader]


def _row(connection: psycopg.Connection, query: str) -> tuple[float, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return tuple(row)


def _transactions(connection: psycopg.Connection) -> tuple[float, float]:
    _row(connection, idle.FLUSH)
    count, at = _row(connection, idle.TRANSACTIONS)
    return count, at


def _times(path: Path) -> dict[int, int]:
    return {int(number): int(at) for number, at in map(str.split, path.read_text().splitlines())}
