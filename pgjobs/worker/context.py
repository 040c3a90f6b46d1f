"""What a handler is given as ``ctx``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, connections

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import cut_off
from pgjobs.databases import covering
from pgjobs.exceptions import InvalidOption, JobTimeout, LeaseLost, PgJobsError
from pgjobs.queue.finish import finishing
from pgjobs.worker import clock
from pgjobs.worker.holdings import Holding


class JobContext:
    """One attempt, seen from inside. Every call raises :class:`LeaseLost` once the job belongs to another."""

    def __init__(
        self, holding: Holding, using: str, confirm: Callable[[Holding], bool], stopping: Any
    ) -> None:
        self._holding = holding
        self._using = using
        self._confirm = confirm
        self._stopping = stopping
        self.finished = False
        """Whether :meth:`finish` has committed."""
        self.cut_off: BaseException | None = None
        """What :meth:`finish` raised when the server went away from under it: the handler's doing least of all."""

    @property
    def job_id(self) -> int:
        """The job's id."""
        return self._holding.lease.pk

    @property
    def attempt(self) -> int:
        """Number of this attempt, 1 for the first."""
        return self._holding.job.attempt

    @property
    def idempotency_key(self) -> str | None:
        """The key given at enqueue."""
        return self._holding.job.idempotency_key

    @property
    def lease(self) -> str:
        """A value no other attempt of any job has; hand it to other systems as fencing or idempotency value."""
        return f"{self.job_id}-{self._holding.lease.token}"

    @property
    def should_stop(self) -> bool:
        """Whether to come to an end: the worker shuts down, the time is up, or the lease is lost."""
        return self._holding.lost or self._holding.timed_out or bool(self._stopping.is_set())

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Tell people how far the job is. Costs no round trip: the latest value is written by the heartbeat."""
        self._check()
        if isinstance(done, bool) or not isinstance(done, int | float) or not abs(done) < float("inf"):
            raise InvalidOption("done", done, "give a finite number.")
        if total is not None and (not isinstance(total, int | float) or not abs(total) < float("inf")):
            raise InvalidOption("total", total, "give a finite number or None.")
        text = codec.storable_text(str(note), 500)
        self._holding.progress = json.dumps({"done": done, "total": total, "note": text})

    @contextmanager
    def finish(self, result: Any = None) -> Iterator[None]:
        """One short transaction: what the block writes and the job's success commit together, or not at all.

        ``result`` must be storable as JSON. Raises :class:`LeaseLost` before the block when the job is no longer
        this attempt's, and :class:`CommitLost` when the block closed the connection. What the database raises when
        the server goes away inside costs no attempt, a few times, if the handler lets it pass.
        """
        self._check()
        if self.finished:
            raise PgJobsError(f"job {self.job_id}: ctx.finish() was used twice; one attempt ends once.")
        text = None if result is None else encode_result(result)
        holding = self._holding
        holding.finishing = True
        session: Any = None
        try:
            with (
                finishing(holding.job, text, using=self._using, keep_trying=lambda: holding.surely_held),
                covering(self._using, "ctx.finish()", holding.job.job_type),
            ):
                session = connections[self._using].connection
                yield
        except BaseException as error:
            holding.finishing = False
            if isinstance(error, Error) and cut_off(error, session):
                self.cut_off = error
            raise
        self.finished = True

    def _check(self) -> None:
        if self._holding.timed_out:
            job = self._holding
            raise JobTimeout(self.job_id, (job.deadline or job.started_at) - job.started_at)
        if self.finished:
            return
        if self._holding.lost:
            raise LeaseLost("job", self.job_id)
        # A process that was stopped or starved cannot know by itself whether it is still the holder.
        if clock.now() > self._holding.good_until and not self._confirm(self._holding):
            raise LeaseLost("job", self.job_id, "its lease lapsed and could not be confirmed")


def encode_result(result: Any) -> str:
    """``result`` as JSON text. Raises :class:`NotStorable`."""
    return codec.dumps(result, label="result", max_bytes=get_settings().max_result_bytes)
