"""What authors of jobs import: ``@job`` and the object it makes. Loads no models until something is enqueued."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from asgiref.sync import sync_to_async
from django.utils import timezone

from pgjobs import codec
from pgjobs.backoff import MAX_DELAY_SECONDS, Backoff
from pgjobs.conf import get_settings
from pgjobs.exceptions import InvalidOption, PgJobsError
from pgjobs.queue.binding import Binding
from pgjobs.queue.registry import Handler, RetryPolicy, registry
from pgjobs.redaction import checked_entries

if TYPE_CHECKING:
    from pgjobs.queue.enqueue import NewJobs
    from pgjobs.queue.models import Job

_UNSET: Any = object()
_DEFAULT_RETRY = Backoff()
_SMALLEST, _LARGEST = -32_768, 32_767  # smallint


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What is written on the row beside the arguments."""

    queue: str = "default"
    priority: int = 100
    max_attempts: int = 5
    max_crashes: int = 3
    run_after: dt.datetime | dt.timedelta | None = None
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        _check_name("queue", self.queue, 100)
        if self.idempotency_key is not None:
            _check_name("idempotency_key", self.idempotency_key, 255)
        _check_whole("priority", self.priority, _SMALLEST, _LARGEST)
        _check_whole("max_attempts", self.max_attempts, 1, 10_000)
        _check_whole("max_crashes", self.max_crashes, 1, 1_000)
        _check_run_after(self.run_after)


@dataclass(frozen=True, slots=True, eq=False)
class JobType:
    """A handler that can be enqueued. Calling it calls the function, here and now."""

    handler: Handler
    binding: Binding
    options: JobOptions
    _new: NewJobs | None = field(init=False, repr=False, default=None)

    @property
    def signature(self) -> inspect.Signature:
        """What ``enqueue`` takes: the function's parameters without the context."""
        return self.binding.signature

    @property
    def job_type(self) -> str:
        """The name its rows carry."""
        return self.handler.job_type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def using(
        self,
        *,
        queue: str = _UNSET,
        priority: int = _UNSET,
        run_after: dt.datetime | dt.timedelta | None = _UNSET,
        idempotency_key: str | None = _UNSET,
        max_attempts: int = _UNSET,
        max_crashes: int = _UNSET,
    ) -> JobType:
        """A copy that enqueues with other options.

        ``run_after`` is an aware datetime, or a timedelta that the database adds to its own clock. A job whose
        ``idempotency_key`` already has a result is not worked again.
        """
        given: dict[str, Any] = {
            "queue": queue,
            "priority": priority,
            "run_after": run_after,
            "idempotency_key": idempotency_key,
            "max_attempts": max_attempts,
            "max_crashes": max_crashes,
        }
        return replace(
            self, options=replace(self.options, **{k: v for k, v in given.items() if v is not _UNSET})
        )

    def s(self, *args: Any, **kwargs: Any) -> JobCall:
        """This call as a value, for ``ctx.gather`` and ``ctx.job`` of a workflow. Checked here, run there.

        Raises :class:`SignatureMismatch` or :class:`NotStorable`.
        """
        return JobCall(self, self._text(self.binding.bind(args, kwargs)))

    def enqueue(self, *args: Any, **kwargs: Any) -> Job:
        """Insert one job in the caller's transaction; workers see it when that commits.

        Raises :class:`SignatureMismatch` or :class:`NotStorable`; then nothing was inserted.
        """
        from pgjobs.queue.enqueue import insert_job  # models: not before Django is ready

        payload = self.binding.bind(args, kwargs)
        return insert_job(self.new(), payload, self._text(payload), self.options.idempotency_key)

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Job:
        """:meth:`enqueue` for async code. Not part of a transaction: Django's are synchronous."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    def enqueue_many(
        self,
        payloads: Iterable[Mapping[str, Any]],
        *,
        idempotency_key: Callable[[dict[str, Any]], str] | None = None,
    ) -> list[int]:
        """Insert many jobs, all or none, and return their ids in the order given.

        ``idempotency_key`` makes the key of each job from its keyword arguments.
        """
        from pgjobs.queue.enqueue import insert_jobs

        if self.options.idempotency_key is not None:
            raise InvalidOption(
                "idempotency_key",
                self.options.idempotency_key,
                "many jobs cannot share one key; pass enqueue_many(..., idempotency_key=function_of_arguments).",
            )
        bound: list[dict[str, Any]] = []
        keys: list[str | None] = []
        for position, given in enumerate(payloads):
            try:
                payload = self.binding.bind((), given)
                keys.append(_checked_key(idempotency_key(payload)) if idempotency_key else None)
            except PgJobsError as error:
                _place(error, position)
                raise
            bound.append(payload)
        # What runs code of the project's (a subclass of datetime or Decimal) is written before the server is busy with
        # the rows: a query of that code would wait for ever in the middle of a COPY.
        texts = [None if codec.is_flat(p) else self._text_at(n, p) for n, p in enumerate(bound)]
        return insert_jobs(self.new(), lambda: self._texts(bound, texts), keys)

    async def aenqueue_many(
        self,
        payloads: Iterable[Mapping[str, Any]],
        *,
        idempotency_key: Callable[[dict[str, Any]], str] | None = None,
    ) -> list[int]:
        """:meth:`enqueue_many` for async code."""
        return await sync_to_async(self.enqueue_many)(payloads, idempotency_key=idempotency_key)

    def _text(self, payload: dict[str, Any]) -> str:
        return codec.dumps(payload, label="payload", max_bytes=get_settings().max_payload_bytes)

    def _text_at(self, position: int, payload: dict[str, Any]) -> str:
        try:
            return self._text(payload)
        except PgJobsError as error:
            _place(error, position)
            raise

    def _texts(self, payloads: Iterable[dict[str, Any]], written: Iterable[str | None]) -> Iterator[str]:
        for position, (payload, text) in enumerate(zip(payloads, written, strict=True)):
            yield self._text_at(position, payload) if text is None else text

    def new(self) -> NewJobs:
        """What rows of this type have beside the arguments."""
        from pgjobs.queue.enqueue import NewJobs

        new = self._new
        if new is None:
            o = self.options
            new = NewJobs(self.job_type, o.queue, o.priority, o.max_attempts, o.max_crashes, o.run_after)
            object.__setattr__(self, "_new", new)  # kept: the same for every call
        return new


@dataclass(frozen=True, slots=True)
class JobCall:
    """A job type with its arguments, not yet enqueued."""

    type: JobType
    payload: str
    """JSON text of the keyword arguments."""

    def new(self) -> NewJobs:
        """What its row has beside the arguments."""
        return self.type.new()


@overload
def job(function: Callable[..., Any], /) -> JobType: ...
@overload
def job(
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 100,
    max_attempts: int = 5,
    max_crashes: int = 3,
    retry: RetryPolicy = _DEFAULT_RETRY,
    timeout: float | dt.timedelta | None = None,
    takes_context: bool = False,
    redact: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], JobType]: ...
def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 100,
    max_attempts: int = 5,
    max_crashes: int = 3,
    retry: RetryPolicy = _DEFAULT_RETRY,
    timeout: float | dt.timedelta | None = None,
    takes_context: bool = False,
    redact: Sequence[str] = (),
) -> Any:
    """Make a function a job type, with or without arguments: ``@job`` or ``@job(queue="documents")``.

    ``retry`` says how long to wait after an exception; ``timeout`` (seconds or timedelta) bounds one attempt;
    with ``takes_context`` the first parameter is the context. ``redact`` names further keys of payload and result that
    are secret, such as "iban" or "customer.email" (:mod:`pgjobs.redaction`). Rows carry ``name``, by default
    ``<app label>.<function name>``: renaming a function orphans rows that wait under the old name.
    Raises :class:`InvalidHandler`, :class:`InvalidOption` or :class:`DuplicateName` at import.
    """
    options = JobOptions(queue=queue, priority=priority, max_attempts=max_attempts, max_crashes=max_crashes)
    seconds = _check_timeout(timeout)
    hidden = checked_entries(redact)
    if not isinstance(retry, Backoff) and not callable(retry):
        raise InvalidOption("retry", retry, "give a Backoff, or a function of attempt and exception.")

    def declare(function: Callable[..., Any]) -> JobType:
        handler = Handler(function, name, retry, seconds, takes_context, hidden)
        binding = Binding(handler)
        registry.add(handler)
        return JobType(handler, binding, options)

    return declare if function is None else declare(function)


def _place(error: PgJobsError, position: int) -> None:
    error.add_note(f"It was payload {position} of enqueue_many, counted from 0.")


def _check_name(option: str, value: Any, longest: int) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidOption(option, value, "give non-empty text.")
    if len(value) > longest:
        raise InvalidOption(
            option, value, f"{len(value)} characters are more than {longest}; shorten or hash it."
        )
    codec.check_text(value, option)


def _checked_key(key: str) -> str:
    _check_name("idempotency_key", key, 255)
    return key


def _check_whole(option: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidOption(option, value, f"give a whole number from {least} to {most}.")


def _check_run_after(value: Any) -> None:
    if value is None:
        return
    if isinstance(value, dt.timedelta):
        if not 0 <= value.total_seconds() <= 100 * MAX_DELAY_SECONDS:
            raise InvalidOption("run_after", value, "give a delay from 0 to 100 years.")
    elif not isinstance(value, dt.datetime):
        raise InvalidOption("run_after", value, "give an aware datetime or a timedelta.")
    elif timezone.is_naive(value):
        raise InvalidOption(
            "run_after", value, "a naive time has no instant; use django.utils.timezone.now()."
        )


def _check_timeout(value: Any) -> float | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, dt.timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidOption("timeout", value, "give seconds or a timedelta.")
    if not 0 < seconds <= MAX_DELAY_SECONDS:
        raise InvalidOption("timeout", value, "give more than 0 and at most a year.")
    return float(seconds)
