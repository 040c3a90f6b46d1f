"""One worker process: composes the services, starts them in order, and stops them in reverse within the grace."""

from __future__ import annotations

import functools
import logging
import os
import queue
import select
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

from django.db import Error

from pgjobs import connections, signals
from pgjobs.conf import get_settings
from pgjobs.exceptions import JobTimeout
from pgjobs.leases.release import release
from pgjobs.queue.attempts import ClaimedJob, Ended
from pgjobs.worker import clock, keeping, registration
from pgjobs.worker.dispatch import Dispatch
from pgjobs.worker.executor import Executor
from pgjobs.worker.heartbeat import Heartbeat
from pgjobs.worker.holdings import Holding, Holdings
from pgjobs.worker.kinds import KINDS
from pgjobs.worker.ledger import READY, STOPPING, WITHOUT_DATABASE, Ledger
from pgjobs.worker.listener import Listener
from pgjobs.worker.options import SUSPECTS, WorkerOptions
from pgjobs.worker.pace import Pace
from pgjobs.worker.producer import Producer
from pgjobs.worker.recorder import EndRequest, Recorder
from pgjobs.worker.registration import Vitals
from pgjobs.worker.service import RECONNECT, Service
from pgjobs.worker.settler import Settler
from pgjobs.worker.slots import Slots
from pgjobs.worker.statistics import Statistics
from pgjobs.worker.turns import Turns
from pgjobs.workflows.lifecycle import pause

logger = logging.getLogger("pgjobs.worker")

EXIT_DRAINED = 0
EXIT_RECYCLE = 75
"""A handler did not come back from its timeout: a fresh process is wanted, nobody is to blame."""

_STOP, _NOW, _DRAINED, _RECYCLE = "stop", "now", "drained", "recycle"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_LAST_WORDS = 5.0  # seconds for the database to take settlements and hand-backs at the end


def _keep_signals_from_forks() -> None:
    """In a child that a handler has forked SIGTERM means the end, as whoever started it expects.

    They are blocked around the fork: one that came between fork and reset would go to our handler and be lost.
    """
    mask = threading.local()

    def block() -> None:
        mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask.before)

    def reset() -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=reset)


class WorkerProcess:
    """Claims, runs and settles until told to stop."""

    def __init__(
        self,
        options: WorkerOptions,
        lifeline: int | None = None,
        ledger: int | None = None,
        news: int | None = None,
    ) -> None:
        self._options = options
        self._lifeline = lifeline
        self._news = news
        self._using = using = get_settings().database
        self._requests: queue.SimpleQueue[str] = queue.SimpleQueue()  # put is safe in a signal handler
        self._stopping = threading.Event()
        self._ledger = None if ledger is None else Ledger(ledger)
        self._holdings = Holdings(options.lease_seconds, self._ledger)
        self._pace = Pace(options.concurrency)
        self._statistics = Statistics(using=using)
        self._settler = Settler(
            using,
            self._holdings,
            lambda seconds: self._producer.due_in(seconds),
            self._statistics.settled,
        )
        self._recorder = Recorder(using, self._holdings, self._statistics.ended)
        self._listener = (
            Listener(using, self._notified) if get_settings().notify and not options.suspect else None
        )
        self._heartbeat = Heartbeat(using, options, self._holdings, self._vitals, self._replace_stuck)
        self._executor = self._new_executor()
        self._slots = Slots(options.concurrency, self._dispatch(), lambda: self._producer.slot_freed())
        self._producer = Producer(
            using,
            options,
            self._slots,
            self._holdings,
            pace=self._pace,
            statistics=self._statistics,
            hearing=lambda: self._listener is not None and self._listener.hearing,
            on_claimed=self._settler.expect,
            on_drained=lambda: self._requests.put(_DRAINED),
            on_suspects=self._tell_supervisor,
        )

    def run(self) -> int:
        """Work until a signal, the end of the supervisor, or the end of the work; return the exit code."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        _keep_signals_from_forks()
        connections.protect_from_forks()
        if self._lifeline is not None:
            threading.Thread(target=self._watch_lifeline, name="pgjobs-lifeline", daemon=True).start()
        if not self._register():
            self._sign_off()
            return 0
        if self._ledger is not None:
            self._heartbeat.on_turn = self._ledger.beat
            self._producer.on_turn = self._turned
        keeping.begin()
        for service in self._services():
            service.on_broken = lambda: self._requests.put(_RECYCLE)
            service.start()
        signals.worker_started.send_robust(None, name=self._options.name, pid=os.getpid())
        sys.stdout.write(f"pgjobs: worker {self._options.name} ready (pid {os.getpid()})\n")
        sys.stdout.flush()
        reason = self._requests.get()
        if reason == _NOW:
            self._requests.put(_NOW)
        idle, released = self._shut_down()
        signals.worker_stopped.send_robust(None, name=self._options.name, pid=os.getpid(), released=released)
        code = EXIT_RECYCLE if reason == _RECYCLE else EXIT_DRAINED
        if not idle:
            # Threads of handlers that go on cannot be ended otherwise. Their rows are handed back.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(code)
        return code

    def _dispatch(self) -> Dispatch:
        """What runs in the slots."""
        turns = Turns(
            using=self._using,
            recorder=self._recorder,
            holdings=self._holdings,
            confirm=self._heartbeat.confirm,
            parked=self._parked,
            stopping=self._stopping,
        )
        return Dispatch(self._executor, turns)

    def _new_executor(self) -> Executor:
        return Executor(
            using=self._using,
            holdings=self._holdings,
            settled=self._ended,
            confirm=self._heartbeat.confirm,
            stopping=self._stopping,
        )

    def _turned(self) -> None:
        """Before each round of the claim loop: tell the supervisor of it, and how the last one went."""
        assert self._ledger is not None
        self._ledger.turned()
        self._ledger.state(WITHOUT_DATABASE if self._producer.failures else READY)

    def _vitals(self) -> Vitals:
        return Vitals(
            poll_age=self._producer.poll_age(),
            done_age=self._statistics.done_age,
            chores=self._producer.chores(),
            busy=self._slots.busy,
            draining=self._stopping.is_set(),
        )

    def _services(self) -> list[Service]:
        services: list[Service] = [self._settler, self._recorder, self._heartbeat, self._producer]
        return services if self._listener is None else [*services, self._listener]

    def _register(self) -> bool:
        """Write the worker's row, however long the database is away or refuses; False when stopped meanwhile."""
        failures = 0
        handlers = {name for kind in KINDS for name in kind.names()}
        while True:
            if self._ledger is not None:
                self._ledger.turned()  # waiting for a database is no standing still
                self._ledger.beat()
            try:
                registration.register(self._options, handlers, using=self._using)
                return True
            except Error as error:
                failures += 1
                if not failures & (failures - 1):
                    logger.warning("worker=%s cannot register yet: %s", self._options.name, error)
            finally:
                connections.drop(self._using)
            try:
                self._requests.get(timeout=RECONNECT.delay(failures))
                return False
            except queue.Empty:
                continue

    def _shut_down(self) -> tuple[bool, int]:
        """Stop claiming, wait for the slots, write the last ends, hand the rest back."""
        self._stopping.set()
        if self._ledger is not None:
            self._ledger.state(STOPPING)
        self._heartbeat.renew_now()
        self._producer.stop()
        self._hand_back(self._slots.take_waiting())
        idle = self._wait_for_slots()
        self._producer.join(_LAST_WORDS)
        self._settler.wait_empty(_LAST_WORDS)
        self._recorder.wait_empty(_LAST_WORDS)
        released = self._hand_back(self._holdings.all())
        self._sign_off()
        for service in self._services():
            service.stop()
        self._settler.join(_LAST_WORDS)
        self._recorder.join(_LAST_WORDS)
        self._heartbeat.join(1.0)
        try:
            self._statistics.flush()
            registration.close(self._options.name, using=self._using)
        except Error as error:
            logger.warning("worker=%s could not sign off: %s", self._options.name, error)
        finally:
            connections.drop(self._using)
            keeping.end()
        if idle:
            self._slots.close()
        logger.info("worker=%s stopped idle=%s handed_back=%s", self._options.name, idle, released)
        return idle, released

    def _wait_for_slots(self) -> bool:
        """Until nothing runs but stuck handlers, the grace is over, or somebody insists. True when all is idle."""
        until = clock.now() + self._options.grace_seconds
        while not self._slots.wait_idle(0.05):
            try:
                insisted = self._requests.get_nowait() == _NOW
            except queue.Empty:
                insisted = False
            if insisted or clock.now() >= until:
                return False
        return not self._slots.stuck

    def _sign_off(self) -> None:
        """From here on the end of this process is no crash, whatever it looks like."""
        if self._ledger is not None:
            self._ledger.sign_off()

    def _hand_back(self, left: list[Holding]) -> int:
        """Release what has not ended, unspent; for a few seconds against a database that is away or refuses."""
        for holding in left:
            holding.lost = True
        leases = {kind: [h.lease for h in left if h.lease.label == kind.model.LEASE.label] for kind in KINDS}
        until = clock.now() + _LAST_WORDS
        failures = 0
        while True:
            try:
                released = [release(kind.model, held, using=self._using) for kind, held in leases.items()]
                self._holdings.drop(left)
                return sum(map(len, released))
            except Error as error:
                connections.drop(self._using)
                failures += 1
                if clock.now() >= until:
                    logger.warning(
                        "worker=%s could not hand back %s rows: %s", self._options.name, len(left), error
                    )
                    return 0
            threading.Event().wait(RECONNECT.delay(failures))

    def _replace_stuck(self, holding: Holding) -> None:
        """A handler ignores its timeout: end its attempt in its place, and ask for a fresh process."""
        holding.ended = True
        error = JobTimeout(holding.lease.pk, (holding.deadline or 0) - holding.started_at)
        logger.error(
            "job=%s does not come back from its timeout; the process will be replaced", holding.lease.pk
        )
        if isinstance(holding.claimed, ClaimedJob):
            outcome = self._executor.by_policy(holding, error, "timeout")
            self._settler.settled(holding, Ended(holding.claimed, outcome))
        else:
            reason = f"a step did not come back from its timeout: {error}"
            self._recorder.put(EndRequest(holding, functools.partial(pause, reason=reason)))
        self._slots.give_up(holding)
        self._requests.put(_RECYCLE)

    def _ended(self, holding: Holding, ended: Ended) -> None:
        self._pace.note(ended.job.job_type, ended.seconds)
        self._settler.settled(holding, ended)

    def _parked(self, seconds: float) -> None:
        """A wait of this process is due then: the claim loop must not sleep past it."""
        self._producer.sweeper.due_in(seconds)
        self._producer.due_in(seconds)

    def _tell_supervisor(self) -> None:
        """There are suspects, which it starts: this process took rows back from a dead worker, or sees some wait."""
        if self._news is not None:
            with suppress(OSError):  # full, or nobody reads: it looks by itself now and then
                os.write(self._news, SUSPECTS)

    def _notified(self) -> None:
        self._producer.wake()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # SIGTERM may come twice for one request: from a service manager to the whole group, and from the parent.
        self._requests.put(_NOW if number == signal.SIGQUIT else _STOP)

    def _watch_lifeline(self) -> None:
        """The supervisor holds the other end: end of file means that it is gone. Each round says that this
        process runs."""
        lifeline = int(self._lifeline or 0)
        while True:
            if self._ledger is not None:
                self._ledger.awake()
            ready, _, _ = select.select([lifeline], [], [], self._options.heartbeat_seconds)
            if ready and not os.read(lifeline, 1):
                break
        logger.warning("worker=%s its supervisor is gone; stopping", self._options.name)
        self._requests.put(_STOP)
