"""The typed errors of pgjobs. Each takes data and writes its own message: the value, the rule, the cure."""

from __future__ import annotations

from datetime import timedelta


class PgJobsError(Exception):
    """Base of every error that pgjobs raises on purpose."""


class SettingsError(PgJobsError):
    """A key or value of ``settings.PGJOBS`` cannot be used."""


class DuplicateName(PgJobsError):
    """Two functions claim one name; rows would run whichever was imported last."""

    def __init__(self, kind: str, name: str, first: str, second: str) -> None:
        super().__init__(
            f"The {kind} {name!r} is declared twice: at {first} and at {second}. "
            f"A {kind} names exactly one function; give one of them another name with name=."
        )


class InvalidHandler(PgJobsError):
    """``@job`` was put on something that a row of keyword arguments cannot call."""


class UnknownJobType(PgJobsError):
    """A name that no handler of this process carries."""

    def __init__(self, job_type: str, known: list[str]) -> None:
        super().__init__(
            f"No handler is registered for job type {job_type!r}. Only registered handlers run; put it in a "
            f"jobs.py of an installed app. Registered here: {', '.join(known) or 'none'}."
        )


class UnknownWorkflow(PgJobsError):
    """A name that no workflow of this process carries."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f"No workflow {name!r} is registered. Only registered workflows run; put it in a workflows.py of an "
            f"installed app. Registered here: {', '.join(known) or 'none'}."
        )


class UnknownName(PgJobsError):
    """A queue was named of which nothing is known; that nothing is wrong with it would be no answer."""


class SignatureMismatch(PgJobsError, TypeError):
    """The arguments given to ``enqueue`` or ``start`` do not fit the function."""

    def __init__(self, name: str, signature: str, problem: str, undone: str = "No job was enqueued.") -> None:
        super().__init__(f"{name}{signature} cannot be called this way: {problem}. {undone}")


class InvalidOption(PgJobsError, ValueError):
    """An option of ``@job``, ``using`` or a verb has a value that makes no sense."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(f"{name}={_short(value)} is not allowed: {rule}")


class AppendOnly(PgJobsError):
    """The audit is added to, never changed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: what was recorded is not changed or deleted. Old rows go by AUDIT_DAYS in PGJOBS; to correct "
            f"a row, record another."
        )


class NotStorable(PgJobsError, ValueError):
    """A value that PostgreSQL's jsonb cannot hold, or would hand back changed.

    ``path`` says where in the value the trouble lies (``payload.lines[3].price``).
    """

    def __init__(self, path: str, problem: str, cure: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}. {cure}")


class LeaseLost(PgJobsError):
    """The row is no longer this holder's: reaped, released, cancelled, or claimed by somebody else.

    Nothing was written. A handler should stop; whatever it does now, the row belongs to another.
    """

    def __init__(self, label: str, pk: int, problem: str = "its lease has passed to somebody else") -> None:
        self.pk = pk
        super().__init__(
            f"{label} {pk}: {problem}. Nothing was written; stop working on it and let the present holder finish."
        )


class CommitLost(PgJobsError):
    """The block of ``ctx.finish`` or ``ctx.atomic`` was left, but its transaction did not commit.

    Happens when the handler closes its connection inside the block (``connection.close()``,
    ``close_old_connections()``): Django then leaves ``atomic()`` in silence and nothing is stored.
    """

    def __init__(self, pk: int, label: str = "job", call: str = "ctx.finish()") -> None:
        super().__init__(
            f"{label} {pk}: the transaction of {call} did not commit: its connection was closed or replaced, or "
            f"the transaction was ended by hand, inside the block. Do neither inside {call}."
        )


class AlreadyProduced(PgJobsError):
    """Leaves ``ctx.finish`` before its body runs: the job's idempotency key already has a result.

    Let it pass: the executor ends the job as succeeded with the stored result.
    """

    def __init__(self, key: str, pk: int) -> None:
        self.key = key
        super().__init__(
            f"job {pk}: the idempotency key {key!r} already has a result, so its effect has landed before. "
            f"The block of ctx.finish() is skipped; do not catch this exception."
        )


class JobTimeout(PgJobsError):
    """A handler ran past its ``timeout``. Counts as a failed attempt."""

    def __init__(self, pk: int, seconds: float) -> None:
        super().__init__(f"job {pk} ran longer than its timeout of {seconds:g} s")


class Fail(Exception):
    """Raise in a handler: this job can never work. It ends ``failed`` at once, with ``reason`` for people."""

    def __init__(self, reason: str = "the handler gave up") -> None:
        self.reason = reason
        super().__init__(reason)


class Retry(Exception):
    """Raise in a handler: try again. Spends an attempt; ``after`` replaces the job type's backoff."""

    def __init__(
        self, reason: str = "the handler asked for a retry", *, after: timedelta | float | None = None
    ) -> None:
        self.reason = reason
        self.after = after
        super().__init__(reason)


class Snooze(Exception):
    """Raise in a handler: not now, come back after ``delay`` (timedelta or seconds). Costs no attempt."""

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        self.delay = delay
        self.reason = reason
        super().__init__(reason or f"snoozed for {delay}")


def _short(value: object, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class WorkflowError(PgJobsError):
    """Base of what goes wrong in workflow code."""


class DurableCallRefused(WorkflowError):
    """A durable call (step, sleep, wait) at a place where its record could not be trusted."""

    def __init__(self, call: str, problem: str, cure: str) -> None:
        super().__init__(f"{call}: {problem}. {cure}")


class StepFailed(WorkflowError):
    """A step has used up its attempts. ``step_id`` names it; ``error_type`` and ``message`` tell the last error.

    The same in the first run and in every replay, so a body may catch it and go another way.
    """

    def __init__(self, step_id: str, error_type: str, message: str, attempts: int = 1) -> None:
        self.step_id = step_id
        self.error_type = error_type
        self.message = message
        self.attempts = attempts
        after = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"step {step_id!r} failed after {after}: {error_type}: {message}")


class WaitTimeout(WorkflowError, TimeoutError):
    """A signal, job or child did not come in time."""

    def __init__(self, step_id: str) -> None:
        self.step_id = step_id
        super().__init__(f"{step_id!r} did not come in time; pass a longer timeout=, or catch WaitTimeout")


class ApprovalTimeout(WaitTimeout):
    """Nobody decided in time, and the approval said on_timeout="raise"."""


class TooManyCalls(WorkflowError):
    """An execution has made as many durable calls as it may. It pauses with this text as reason."""

    def __init__(self, call: str, limit: int) -> None:
        super().__init__(
            f"{call} would be durable call {limit + 1:,} of this execution, and WORKFLOW_MAX_CALLS is {limit:,}. Let "
            f"long loops go on by ctx.continue_as_new(...), or raise the setting; then resume the execution."
        )


class Diverged(WorkflowError):
    """The code calls something else than the history recorded. The execution pauses with this text as reason."""


class ExecutionFailed(WorkflowError):
    """An execution that somebody waits for ended without success."""

    def __init__(self, pk: int, status: str, error: str) -> None:
        self.pk = pk
        self.status = status
        super().__init__(f"execution {pk} ended {status}: {error or 'no error was recorded'}")


class JobsFailed(WorkflowError):
    """More jobs of a gather failed than it tolerates. ``failures`` is a list of (index, job id, status, error)."""

    def __init__(self, step_id: str, failures: list[tuple[int, int, str, str]], tolerated: int) -> None:
        self.step_id = step_id
        self.failures = failures
        index, job_id, status, error = failures[0]
        super().__init__(
            f"{step_id!r}: {len(failures)} of its jobs ended without success; tolerated: {tolerated}. "
            f"First: item {index}, job {job_id} {status}: {error}"
        )


class MarkLeft(PgJobsError, ValueError):
    """An edited value still has the mark of a hidden secret where the secret itself is not known."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(
            f"The edited value has the mark of a hidden secret at {place}: {problem}. A mask is never stored; put the "
            f"value itself there, or leave the mark where it was."
        )
        self.place = place
