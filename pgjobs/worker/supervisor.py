"""The parent: keeps worker processes alive, gives back what dead ones held, and lets suspects run alone."""

from __future__ import annotations

import logging
import select
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from django.db import Error

from pgjobs import connections
from pgjobs.backoff import Backoff
from pgjobs.conf import get_settings
from pgjobs.leases.due import suspects_free, suspects_waiting
from pgjobs.leases.reap import reap_owner
from pgjobs.leases.release import release_owner, still_owned
from pgjobs.worker import clock, memory, registration
from pgjobs.worker.children import Child, start
from pgjobs.worker.kinds import JOBS, KINDS, Kind, known_kinds
from pgjobs.worker.options import START_AHEAD, SUSPECTS, WorkerOptions
from pgjobs.worker.probes import Probes
from pgjobs.worker.statistics import count_reaped

logger = logging.getLogger("pgjobs.supervisor")

_RESTART = Backoff(base=0.5, cap=30, jitter=0.1)
_HEALTHY_AFTER = 10.0  # a child that lived this long starts afresh in the restart backoff
_KILL_AFTER = 10.0  # seconds beyond the grace before a child that does not end is killed
_STAY_FOR_DATABASE = 5.0  # seconds after a stop; later the leases lapse by themselves
_SILENT_LEASES = 10
"""A child of which no thread has run for so many leases is replaced: it was stopped, or one of its handlers keeps the
interpreter to itself. Others have long taken its rows, but for those that its sessions have locked."""
_SILENT_STILL = (
    5.0  # seconds later: when the whole machine stood still, it was no more silent than its supervisor
)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_LOOK_FOR_SUSPECTS = 30.0
"""Seconds between two looks without a reason. As a rule there is one: a child died, or a child has seen suspects."""
_DRAIN_WAITS_FOR_SUSPECTS = 30.0


class Supervisor:
    """Runs until it is told to stop, or, when draining, until nothing is runnable.

    It holds no thread (but that of its probes, if any) and, at rest, no database connection, and waits for signals and
    the next due time alone.
    """

    def __init__(self, options: WorkerOptions, probes: Probes | None = None) -> None:
        self._options = options
        self._probes = probes
        self._using = get_settings().database
        self._children: list[Child] = []
        self._restarts: dict[str, float] = {}
        """Slot -> when to start it again."""
        self._young_deaths: dict[str, int] = {}
        """Slot -> how often in a row it died young."""
        self._to_give_back: list[Child] = []
        self._stop_requests = 0
        self._stopped_at: float | None = None
        self._last_end_at = 0.0
        self._suspects_due = clock.now()
        self._suspects_left = True
        self._in_vain = 0
        """How many processes in a row were started for suspects and have begun none."""
        self._not_before = 0.0
        """For that: when the next such process may be started."""
        self._failures: dict[str, int] = {}
        """Task -> how often in a row it failed."""
        self._wakeup, self._waker = socket.socketpair()

    def run(self) -> int:
        """Supervise; return the exit code."""
        memory.give_back()
        previous = self._install_signals()
        try:
            if self._probes is not None:
                self._probes.start(self._options, lambda: (list(self._children), bool(self._stop_requests)))
            for index in range(self._options.processes):
                if not self._stop_requests:
                    self._start(str(index + 1), self._options)
            while not self._finished():
                self._turn()
            return 0
        finally:
            for child in self._children:
                child.send(signal.SIGKILL)
            if self._probes is not None:
                self._probes.stop()
            self._restore_signals(previous)

    def _turn(self) -> None:
        self._collect()
        if self._to_give_back:
            self._contained("give back what ended workers held", self._give_back)
        if not self._stop_requests:
            self._replace_silent()
            self._restart_due()
            if clock.now() >= self._suspects_due:
                self._contained("look for suspects", self._isolate_suspects)
        self._pass_stop_on()
        connections.drop(self._using)
        if not self._finished():
            self._wait()

    def _finished(self) -> bool:
        if self._children or (self._to_give_back and self._waits_for_database()):
            return False
        return bool(self._stop_requests) or (
            self._options.drain and not self._restarts and not self._suspects_left
        )

    def _waits_for_database(self) -> bool:
        """Whether the rows of ended children are worth staying for, when the database is away."""
        if not self._stop_requests:
            return True
        return self._stop_requests == 1 and clock.now() < self._last_end_at + _STAY_FOR_DATABASE

    def _start(self, slot: str, options: WorkerOptions) -> None:
        self._children.append(start(options, slot, self._waker.fileno()))

    def _could_start(self, slot: str, options: WorkerOptions) -> bool:
        """False when the machine has no process, memory or descriptor to give now: those that work go on."""
        try:
            self._start(slot, options)
        except OSError as error:
            logger.error("a worker process (%s) cannot be started yet: %s", slot, error)
            return False
        return True

    def _collect(self) -> None:
        """Take note of children that have ended."""
        for child in [c for c in self._children if c.has_ended()]:
            self._children.remove(child)
            self._last_end_at = clock.now()
            self._to_give_back.append(child)
            code = child.process.returncode
            if not child.ended_in_order:
                logger.warning("worker=%s pid=%s died code=%s", child.name, child.process.pid, code)
            if child.options.suspect:
                self._note_suspect_end(child)
            elif not self._stop_requests and not (self._options.drain and code == 0 and child.ended_in_order):
                self._plan_restart(child)

    def _note_suspect_end(self, child: Child) -> None:
        # One may come too late, when another machine was quicker. A process that cannot even load is not started in a
        # spin.
        self._in_vain = 0 if child.has_worked else self._in_vain + 1
        self._not_before = clock.now() + (_RESTART.delay(self._in_vain - 1) if self._in_vain > 1 else 0.0)
        self._suspects_due = self._not_before

    def _plan_restart(self, child: Child) -> None:
        young = clock.now() - child.started_at < _HEALTHY_AFTER
        deaths = self._young_deaths.get(child.slot, 0) + 1 if young else 0
        self._young_deaths[child.slot] = deaths
        # The first death is answered at once; a process that dies again and again is not restarted in a spin.
        self._restarts[child.slot] = clock.now() + (_RESTART.delay(deaths - 1) if deaths > 1 else 0.0)

    def _replace_silent(self) -> None:
        """Kill children that have stood still for far too long; what they had begun is charged for it."""
        for child in self._children:
            silent = child.silent_for
            if silent is None or silent < _SILENT_LEASES * child.options.lease_seconds:
                child.silent_since = None
            elif child.silent_since is None:
                child.silent_since = clock.now()
            elif clock.now() - child.silent_since >= _SILENT_STILL:
                logger.error("worker=%s has stood still for %.0f s; replacing it", child.name, silent)
                child.send(signal.SIGKILL)

    def _restart_due(self) -> None:
        for slot, due in list(self._restarts.items()):
            if clock.now() >= due and not self._stop_requests:
                self._restarts.pop(slot, None)
                if not self._could_start(slot, self._options):
                    self._restarts[slot] = clock.now() + _RESTART.cap / 10

    def _give_back(self) -> None:
        """Return the rows of ended children at once, instead of waiting for their leases to lapse."""
        for child in list(self._to_give_back):
            for kind in KINDS:
                self._give_back_kind(child, kind)
            if any(still_owned(kind.model, child.name, using=self._using) for kind in KINDS):
                continue  # the server has not ended its last session yet: at the next turn
            registration.close(child.name, reason=child.died_of, using=self._using)
            self._to_give_back.remove(child)
            child.close()

    def _give_back_kind(self, child: Child, kind: Kind) -> None:
        if child.ended_in_order:
            release_owner(kind.model, child.name, using=self._using)
            return
        begun = child.begun()
        reaped = reap_owner(
            kind.model,
            child.name,
            only=None if begun is None else begun[kind.model.LEASE.label],
            using=self._using,
            on_exhausted=kind.on_exhausted,
        )
        if begun is not None:
            spare = begun[
                kind.model.LEASE.label
            ]  # charged above, or at the next turn: never handed back unspent
            release_owner(kind.model, child.name, spare=spare, using=self._using)
        if reaped:
            if kind is JOBS:
                count_reaped(reaped, using=self._using)
            logger.warning(
                "worker=%s gave back %s requeued=%s exhausted=%s",
                child.name,
                kind.model.LEASE.label,
                reaped.requeued,
                reaped.exhausted,
            )
            self._suspects_left = True
            self._suspects_due = clock.now()

    def _isolate_suspects(self) -> None:
        """Start one process for each due suspect, as far as there is room for them."""
        due, next_due = self._suspects_waiting()
        alone = [child for child in self._children if child.options.suspect]
        starting = sum(not child.has_begun for child in alone)  # each will take one of those that are due
        room = get_settings().isolated_processes - len(alone) if clock.now() >= self._not_before else 0
        wanted = min(due - starting, room)
        if wanted > 0:  # a process is dear: not for a row that somebody has locked
            wanted = self._suspects_free(starting + wanted) - starting
        for index in range(max(wanted, 0)):
            if self._stop_requests:
                return
            one = replace(self._options, suspect=True, processes=1, concurrency=1, reaper=False)
            if not self._could_start(f"suspect{index + 1}", one):
                break
        self._suspects_left = bool(due or alone) or (
            next_due is not None and next_due < _DRAIN_WAITS_FOR_SUSPECTS
        )
        wait = get_settings().reap_seconds if self._suspects_left else _LOOK_FOR_SUSPECTS
        if next_due is not None:
            wait = min(next_due - START_AHEAD, wait)
        self._suspects_due = clock.now() + max(wait, 0.05)

    def _suspects_waiting(self) -> tuple[int, float | None]:
        """How many are due or nearly so, of all kinds, and seconds until the next one is."""
        found = [
            suspects_waiting(
                kind.model,
                kinds=kind.names(),
                queues=self._options.queues,
                ahead=START_AHEAD,
                using=self._using,
            )
            for kind in known_kinds()
        ]
        later = [seconds for _, seconds in found if seconds is not None]
        return sum(due for due, _ in found), min(later, default=None)

    def _suspects_free(self, limit: int) -> int:
        """How many of those could be claimed now, counted to ``limit``."""
        free = 0
        for kind in known_kinds():
            if free < limit:
                free += suspects_free(
                    kind.model,
                    kinds=kind.names(),
                    queues=self._options.queues,
                    ahead=START_AHEAD,
                    limit=limit - free,
                    using=self._using,
                )
        return free

    def _contained(self, task: str, work: Callable[[], None]) -> None:
        """Nothing that a database says ends the supervisor; everything here is tried again at a later turn."""
        try:
            work()
            self._failures.pop(task, None)
        except Error as error:
            connections.drop(self._using)
            failures = self._failures[task] = self._failures.get(task, 0) + 1
            self._suspects_due = clock.now() + 1.0
            if not failures & (failures - 1):
                why = "the database is away" if connections.is_outage(error) else "the database refuses"
                logger.warning("cannot %s yet (failures=%s): %s: %s", task, failures, why, error)

    def _pass_stop_on(self) -> None:
        """Tell every child what it was not told yet, also one that was being started when the request came."""
        requests = self._stop_requests
        if not requests:
            return
        if self._stopped_at is None:
            self._stopped_at = clock.now()
        self._restarts.clear()
        for child in self._children:
            child.stop(requests)
        if clock.now() >= self._kills_at(self._stopped_at):
            self._kill_all()

    def _kills_at(self, stopped_at: float) -> float:
        return stopped_at + self._options.grace_seconds + _KILL_AFTER

    def _kill_all(self) -> None:
        for child in self._children:
            logger.error("worker=%s does not end; killing it", child.name)
            child.killed = True
            child.send(signal.SIGKILL)

    def _wait(self) -> None:
        """Sleep until a signal comes or something is due."""
        due = [self._suspects_due] if not self._stop_requests else []
        due += self._restarts.values()
        silent = [child.silent_since for child in self._children if child.silent_since is not None]
        due += [max(since + _SILENT_STILL, clock.now() + 0.5) for since in silent]
        if self._stopped_at is not None:
            due.append(max(self._kills_at(self._stopped_at), clock.now() + 0.5))
        if self._to_give_back:
            due.append(clock.now() + 0.5)
        timeout = max(min(due) - clock.now(), 0.0) if due else None
        ready, _, _ = select.select([self._wakeup], [], [], timeout)
        if ready and SUSPECTS in self._wakeup.recv(4096):
            self._suspects_due = clock.now()

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        # May come between any two instructions, so it only counts; select() returns, and the turn does the rest.
        self._stop_requests += 1

    def _install_signals(self) -> dict[int, object]:
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        previous: dict[int, object] = {number: signal.getsignal(number) for number in _SIGNALS}
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to be woken
        return previous

    def _restore_signals(self, previous: dict[int, object]) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._wakeup.close()
        self._waker.close()
        connections.drop(self._using)
